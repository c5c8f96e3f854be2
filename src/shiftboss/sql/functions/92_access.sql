-- Access tokens. Callers pass SHA-256 hashes of 256-bit random secrets; the database never sees the secrets.

CREATE OR REPLACE FUNCTION shiftboss.create_token(p_name text, p_role text, p_hash bytea,
    p_lifetime interval DEFAULT NULL,
    p_kind text DEFAULT 'token', p_parent uuid DEFAULT NULL) RETURNS uuid LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id uuid;
BEGIN
    INSERT INTO shiftboss.access_tokens (name, role, hash, expires_at, kind, parent_id)
    VALUES (p_name, p_role, p_hash, shiftboss.now() + p_lifetime, p_kind, p_parent) RETURNING id INTO v_id;
    RETURN v_id;
EXCEPTION WHEN unique_violation THEN
    RAISE EXCEPTION 'a token named "%" already exists', p_name USING ERRCODE = 'unique_violation',
        HINT = 'Choose another name, or revoke the existing token first.';
END $$;

-- Return the owner of a secret, or no row if the secret or its parent is unknown, expired or revoked.
CREATE OR REPLACE FUNCTION shiftboss.authenticate(p_hash bytea)
RETURNS TABLE (id uuid, name text, role text, kind text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT t.id, t.name, t.role, t.kind FROM shiftboss.access_tokens t
        LEFT JOIN shiftboss.access_tokens p ON p.id = t.parent_id
        WHERE t.hash = p_hash AND t.revoked_at IS NULL AND p.revoked_at IS NULL
          AND (t.expires_at IS NULL OR t.expires_at > shiftboss.now())
          AND (p.expires_at IS NULL OR p.expires_at > shiftboss.now());
    -- Update at most once a minute, to avoid a write per call.
    UPDATE shiftboss.access_tokens t SET last_used_at = shiftboss.now()
    WHERE t.hash = p_hash AND coalesce(t.last_used_at, '-infinity') < shiftboss.now() - interval '1 minute';
END $$;

-- Revoke tokens by id or name. Returns their number.
CREATE OR REPLACE FUNCTION shiftboss.revoke_token(p_which text) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_count int;
BEGIN
    UPDATE shiftboss.access_tokens SET revoked_at = shiftboss.now()
    WHERE revoked_at IS NULL AND (id::text = lower(p_which) OR (name = p_which AND kind = 'token'));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

-- Whether services require a token. Permanently true once a token was created: an expired, revoked or
-- deleted token must not open the service to everyone again. Worker tokens give no access to the service and do not
-- count.
CREATE OR REPLACE FUNCTION shiftboss.has_tokens() RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM shiftboss.access_closed)
        OR EXISTS (SELECT FROM shiftboss.access_tokens WHERE kind = 'token' AND role <> 'worker')
$$;

CREATE OR REPLACE FUNCTION shiftboss.close_access() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss.access_closed DEFAULT VALUES ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER close_access AFTER INSERT ON shiftboss.access_tokens
    FOR EACH ROW WHEN (NEW.kind = 'token' AND NEW.role <> 'worker') EXECUTE FUNCTION shiftboss.close_access();

CREATE OR REPLACE FUNCTION shiftboss.create_login(p_hash bytea, p_name text, p_role text, p_lifetime interval)
RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM shiftboss.login_codes WHERE expires_at < shiftboss.now();
    INSERT INTO shiftboss.login_codes (hash, name, role, expires_at)
    VALUES (p_hash, p_name, p_role, shiftboss.now() + p_lifetime);
$$;

-- Redeem a login code, which works once.
CREATE OR REPLACE FUNCTION shiftboss.redeem_login(p_hash bytea) RETURNS TABLE (name text, role text) LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    WITH used AS (DELETE FROM shiftboss.login_codes WHERE hash = p_hash RETURNING *)
    SELECT name, role FROM used WHERE expires_at > shiftboss.now()
$$;

CREATE OR REPLACE FUNCTION shiftboss.record(p_actor text, p_role text, p_action text, p_target text, p_outcome text,
    p_details jsonb DEFAULT '{}') RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.audit (actor, role, action, target, outcome, details)
    VALUES (p_actor, p_role, p_action, p_target, p_outcome, coalesce(p_details, '{}')) RETURNING id
$$;
