-- The identity of the fleet. It marks what belongs to the fleet outside the database: spool directories and worker
-- processes.

-- The identifier of this database cluster, which physical copies share, or NULL if this role may not read it.
CREATE OR REPLACE FUNCTION shiftboss.system_identifier() RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF has_function_privilege('pg_control_system()', 'EXECUTE') THEN
        RETURN (SELECT c.system_identifier FROM pg_control_system() c);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.database_oid() RETURNS oid LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.oid FROM pg_database d WHERE d.datname = current_database()
$$;

-- The identity, the server's own address, and why this database may be a copy: the identity was created on another
-- server or in another database (NULL: it was created here). A database without an identity, such as a cleared
-- template, gets one.
CREATE OR REPLACE FUNCTION shiftboss.identify() RETURNS TABLE (identity uuid, server text, foreign_because text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_system bigint := shiftboss.system_identifier();
BEGIN
    IF NOT EXISTS (SELECT FROM shiftboss.installation) THEN
        INSERT INTO shiftboss.installation (system_identifier, database_oid)
            VALUES (v_system, shiftboss.database_oid())
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY SELECT i.identity, coalesce(host(inet_server_addr()), 'local') || ':' || current_setting('port'),
        CASE WHEN i.system_identifier <> v_system THEN 'it was made on another server'
            WHEN i.database_oid <> shiftboss.database_oid() THEN 'it was made in another database' END
    FROM shiftboss.installation i;
END $$;

-- Declare a copy either a separate fleet with a new identity ('copy') or the same fleet in a new place ('moved'; the
-- original is gone). Clears leases and processes, which belong to the original. Returns the identity. Without p_force,
-- rejects a database that was created here and has live workers, because it is the original.
DROP FUNCTION IF EXISTS shiftboss.adopt(text);
CREATE OR REPLACE FUNCTION shiftboss.adopt(p_as text, p_force boolean DEFAULT false) RETURNS uuid LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_live text;
    v_former uuid;
    v_identity uuid;
BEGIN
    IF p_as IS NULL OR p_as NOT IN ('copy', 'moved') THEN
        RAISE EXCEPTION 'a database can be adopted as "copy" or "moved", not as "%"', p_as
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT p_force AND (SELECT i.foreign_because IS NULL FROM shiftboss.identify() i) THEN
        SELECT w.id INTO v_live FROM public.workers w
        WHERE w.status = 'active' AND w.lease_expires_at > shiftboss.now() ORDER BY w.last_heartbeat DESC LIMIT 1;
        IF v_live IS NOT NULL THEN
            RAISE EXCEPTION 'this looks like the original: it was made here, and worker % is alive', v_live
                USING ERRCODE = 'object_in_use',
                    HINT = 'Check the database URL. If this is the copy, stop its processes first, or use --force.';
        END IF;
    END IF;
    SELECT i.identity INTO v_former FROM shiftboss.installation i FOR UPDATE;
    v_identity := CASE p_as WHEN 'copy' THEN gen_random_uuid() ELSE v_former END;
    UPDATE shiftboss.installation SET identity = v_identity, system_identifier = shiftboss.system_identifier(),
        database_oid = shiftboss.database_oid(), adopted_at = shiftboss.now();
    DELETE FROM shiftboss.leases;
    DELETE FROM shiftboss.supervisors;
    UPDATE public.health SET process = NULL WHERE process IS NOT NULL;
    PERFORM shiftboss.note('installation.adopted', NULL, NULL, NULL,
        jsonb_build_object('as', p_as, 'former', v_former, 'identity', v_identity));
    RETURN v_identity;
END $$;
