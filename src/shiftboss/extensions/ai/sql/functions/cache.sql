-- Cached answers and embeddings, by content.

-- Look up a value or claim its computation. hit: the value is returned. mine: the caller must compute it, then put or release
-- it. wait: another owner is computing it.
CREATE OR REPLACE FUNCTION shiftboss.ai_cache_take(p_key text, p_task_type text, p_owner uuid, p_lease interval)
RETURNS TABLE (state text, value jsonb) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
BEGIN
    SELECT 'hit', c.value INTO state, value FROM shiftboss.ai_cache c
    WHERE c.key = p_key AND c.value IS NOT NULL AND c.expires_at > v_now;
    IF NOT FOUND THEN
        INSERT INTO shiftboss.ai_cache AS c (key, task_type, expires_at, owner, claimed_until)
        VALUES (p_key, p_task_type, v_now + p_lease, p_owner, v_now + p_lease)
        ON CONFLICT (key) DO UPDATE SET
            value = NULL, expires_at = excluded.expires_at, owner = excluded.owner,
            claimed_until = excluded.claimed_until
        WHERE (c.value IS NULL OR c.expires_at <= v_now)
          AND (c.claimed_until IS NULL OR c.claimed_until <= v_now OR c.owner = p_owner);
        state := CASE WHEN FOUND THEN 'mine' ELSE 'wait' END;
    END IF;
    RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.ai_cache_get(p_key text) RETURNS jsonb LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT value FROM shiftboss.ai_cache
    WHERE key = p_key AND value IS NOT NULL AND expires_at > shiftboss.now();
$$;

CREATE OR REPLACE FUNCTION shiftboss.ai_cache_put(p_key text, p_task_type text, p_value jsonb, p_ttl interval)
RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.ai_cache (key, task_type, value, expires_at)
    VALUES (p_key, p_task_type, p_value, shiftboss.now() + p_ttl)
    ON CONFLICT (key) DO UPDATE SET
        value = excluded.value, expires_at = excluded.expires_at, owner = NULL, claimed_until = NULL;
$$;

CREATE OR REPLACE FUNCTION shiftboss.ai_cache_release(p_key text, p_owner uuid) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM shiftboss.ai_cache WHERE key = p_key AND owner = p_owner AND value IS NULL;
$$;

-- The cached values among many keys, for embeddings.
CREATE OR REPLACE FUNCTION shiftboss.ai_cache_get_many(p_keys text[]) RETURNS TABLE (key text, value jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.key, c.value FROM shiftboss.ai_cache c
    WHERE c.key = ANY (p_keys) AND c.value IS NOT NULL AND c.expires_at > shiftboss.now();
$$;

CREATE OR REPLACE FUNCTION shiftboss.ai_cache_put_many(p_values jsonb, p_task_type text, p_ttl interval)
RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.ai_cache (key, task_type, value, expires_at)
    SELECT e.key, p_task_type, e.value, shiftboss.now() + p_ttl FROM jsonb_each(p_values) e ORDER BY e.key
    ON CONFLICT (key) DO UPDATE SET
        value = excluded.value, expires_at = excluded.expires_at, owner = NULL, claimed_until = NULL;
$$;
