-- Functions that other functions, defaults and indexes build on. They run for every row: a SET clause would cost more
-- than the functions themselves, or prevent inlining. Instead, they qualify every name or are parsed at creation.

-- The clock of the whole schema. Tests move it with `SET shiftboss.now = '...'`.
CREATE OR REPLACE FUNCTION shiftboss.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN pg_catalog.current_setting('shiftboss.now', true) OPERATOR(pg_catalog.<>) ''
        THEN shiftboss.test_clock() ELSE pg_catalog.clock_timestamp() END;
END $$;

-- Only the owner of the schema can move the clock. Other sessions get the real time.
CREATE OR REPLACE FUNCTION shiftboss.test_clock() RETURNS timestamptz LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_has_role(session_user, (SELECT nspowner FROM pg_namespace WHERE nspname = 'shiftboss'), 'MEMBER') THEN
        RETURN current_setting('shiftboss.now')::timestamptz;
    END IF;
    RETURN clock_timestamp();
END $$;

CREATE OR REPLACE FUNCTION shiftboss.epoch() RETURNS double precision LANGUAGE sql STABLE RETURN
    extract(epoch FROM shiftboss.now())::double precision;

CREATE OR REPLACE FUNCTION shiftboss.lane_of(p_queue text, p_task_type text, p_priority smallint, p_tenant text,
    p_requires jsonb)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
    hashtextextended(p_queue || chr(31) || p_task_type || chr(31) || p_priority::text || chr(31)
        || coalesce(p_tenant, '') || chr(31) || coalesce(p_requires::text, ''), 0);
