-- Calling a provider is: admit (may I, now?) → the call, outside of any transaction → settle (what came of it).
-- The row of a provider is locked while it decides, so breaker, limits and budget hold for the whole fleet.

CREATE OR REPLACE FUNCTION shiftboss.ai_today() RETURNS date
LANGUAGE sql STABLE AS $$ SELECT (shiftboss.now() AT TIME ZONE 'UTC')::date $$;

CREATE OR REPLACE FUNCTION shiftboss.ai_configure(
    p_provider text, p_model text, p_requests_per_minute int, p_tokens_per_minute int,
    p_daily_budget numeric, p_failure_limit int, p_recovery interval
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO shiftboss.ai_providers AS p
        (provider, model, requests_per_minute, tokens_per_minute, daily_budget, failure_limit, recovery)
    VALUES (p_provider, p_model, p_requests_per_minute, p_tokens_per_minute, p_daily_budget, p_failure_limit, p_recovery)
    ON CONFLICT (provider) DO UPDATE SET
        model = excluded.model, requests_per_minute = excluded.requests_per_minute,
        tokens_per_minute = excluded.tokens_per_minute, daily_budget = excluded.daily_budget,
        failure_limit = excluded.failure_limit, recovery = excluded.recovery, updated_at = shiftboss.now()
    WHERE (p.model, p.requests_per_minute, p.tokens_per_minute, p.daily_budget, p.failure_limit, p.recovery)
        IS DISTINCT FROM (excluded.model, excluded.requests_per_minute, excluded.tokens_per_minute,
            excluded.daily_budget, excluded.failure_limit, excluded.recovery);
$$;

-- Seconds until one more call of so many tokens fits into the last minute; 0 if it fits now.
-- A call that is larger than the whole limit goes through alone, otherwise it would wait for ever.
CREATE OR REPLACE FUNCTION shiftboss.ai_window_wait(
    p_provider text, p_requests int, p_tokens int, p_need int, p_now timestamptz
) RETURNS double precision LANGUAGE sql STABLE AS $$
    WITH recent AS (
        SELECT started_at,
               count(*) OVER newer AS requests_from,
               sum(prompt_tokens + completion_tokens) OVER newer AS tokens_from
        FROM shiftboss.ai_calls
        WHERE provider = p_provider AND started_at > p_now - interval '1 minute'
        WINDOW newer AS (ORDER BY started_at DESC, id DESC)
    )
    SELECT coalesce(extract(epoch FROM max(started_at) + interval '1 minute' - p_now), 0)
    FROM recent
    WHERE requests_from >= p_requests OR tokens_from + p_need > p_tokens;
$$;

CREATE OR REPLACE FUNCTION shiftboss.ai_spent(p_provider text, p_now timestamptz) RETURNS numeric
LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT cost FROM shiftboss.ai_spend
                     WHERE provider = p_provider AND day = (p_now AT TIME ZONE 'UTC')::date), 0)
         + coalesce((SELECT sum(cost) FROM shiftboss.ai_calls
                     WHERE provider = p_provider AND outcome IS NULL AND lease_until > p_now), 0);
$$;

-- Why this provider may not be asked now, and for how long; no row if it may.
CREATE OR REPLACE FUNCTION shiftboss.ai_obstacle(
    p shiftboss.ai_providers, p_tokens int, p_cost numeric, p_now timestamptz
) RETURNS TABLE (reason text, wait_seconds double precision) LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_reopens timestamptz := p.opened_at + p.recovery;
    v_wait    double precision;
BEGIN
    IF p.circuit = 'open' AND v_reopens > p_now THEN
        RETURN QUERY SELECT 'provider open', extract(epoch FROM v_reopens - p_now)::double precision;
    ELSIF p.circuit = 'half-open' AND p.probe_until > p_now THEN
        RETURN QUERY SELECT 'provider open', least(extract(epoch FROM p.probe_until - p_now), 5)::double precision;
    ELSIF p.held_until > p_now THEN
        RETURN QUERY SELECT 'rate limited', extract(epoch FROM p.held_until - p_now)::double precision;
    ELSIF p.daily_budget IS NOT NULL AND shiftboss.ai_spent(p.provider, p_now) + p_cost > p.daily_budget THEN
        RETURN QUERY SELECT 'budget spent', extract(epoch FROM
            (((p_now AT TIME ZONE 'UTC')::date + 1)::timestamp AT TIME ZONE 'UTC') - p_now)::double precision;
    ELSIF p.requests_per_minute IS NOT NULL OR p.tokens_per_minute IS NOT NULL THEN
        v_wait := shiftboss.ai_window_wait(p.provider, p.requests_per_minute, p.tokens_per_minute, p_tokens, p_now);
        IF v_wait > 0 THEN
            RETURN QUERY SELECT 'rate limited', v_wait;
        END IF;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.ai_admit(
    p_provider text, p_model text, p_kind text, p_task_type text, p_task_id uuid,
    p_tokens int, p_cost numeric, p_lease interval
) RETURNS TABLE (call_id bigint, reason text, wait_seconds double precision) LANGUAGE plpgsql AS $$
DECLARE
    v_provider shiftboss.ai_providers;
    v_now      timestamptz;
BEGIN
    SELECT * INTO v_provider FROM shiftboss.ai_providers p WHERE p.provider = p_provider FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'AI provider "%" is not configured', p_provider
            USING HINT = 'call shiftboss.ai_configure first', ERRCODE = 'no_data_found';
    END IF;
    v_now := shiftboss.now();
    SELECT o.reason, o.wait_seconds INTO reason, wait_seconds
    FROM shiftboss.ai_obstacle(v_provider, p_tokens, p_cost, v_now) o;
    IF reason IS NULL THEN
        INSERT INTO shiftboss.ai_calls
            (provider, model, kind, task_type, task_id, started_at, lease_until, prompt_tokens, cost)
        VALUES (p_provider, p_model, p_kind, p_task_type, p_task_id, v_now, v_now + p_lease, p_tokens, p_cost)
        RETURNING id INTO call_id;
        IF v_provider.circuit <> 'closed' THEN
            UPDATE shiftboss.ai_providers p
            SET circuit = 'half-open', probe_id = call_id, probe_until = v_now + p_lease
            WHERE p.provider = p_provider;
        END IF;
    END IF;
    RETURN NEXT;
END $$;

-- Outcomes: ok, malformed (both: the provider is alive), unavailable, refused (both count against the circuit),
-- limited (held for p_retry_after), unsuitable, cancelled. Settling twice changes nothing.
CREATE OR REPLACE FUNCTION shiftboss.ai_settle(
    p_call_id bigint, p_outcome text, p_model text, p_prompt_tokens int, p_completion_tokens int, p_cost numeric,
    p_latency_ms double precision, p_error text, p_retry_after interval
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_provider text;
    v_now      timestamptz := shiftboss.now();
BEGIN
    SELECT c.provider INTO v_provider FROM shiftboss.ai_calls c WHERE c.id = p_call_id;
    -- the provider's row first, as in ai_admit: one order of locks, no deadlock
    PERFORM 1 FROM shiftboss.ai_providers p WHERE p.provider = v_provider FOR UPDATE;
    UPDATE shiftboss.ai_calls SET
        outcome = p_outcome, model = coalesce(p_model, model), finished_at = v_now, latency_ms = p_latency_ms,
        prompt_tokens = p_prompt_tokens, completion_tokens = p_completion_tokens, cost = p_cost, error = p_error
    WHERE id = p_call_id AND outcome IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM shiftboss.ai_add_spend(
        v_provider, 1, (p_error IS NOT NULL)::int, p_prompt_tokens, p_completion_tokens, p_cost);
    PERFORM shiftboss.ai_turn_circuit(v_provider, p_call_id, p_outcome, p_retry_after, v_now);
    UPDATE shiftboss.ai_providers p SET
        latency_ms = CASE WHEN p_outcome IN ('ok', 'malformed')
            THEN coalesce(p.latency_ms * 0.8 + p_latency_ms * 0.2, p_latency_ms) ELSE p.latency_ms END,
        last_error = coalesce(p_error, p.last_error),
        last_error_at = CASE WHEN p_error IS NOT NULL THEN v_now ELSE p.last_error_at END,
        updated_at = v_now
    WHERE p.provider = v_provider;
    -- whoever calls cleans up, a little more than it adds: no process needs to live long enough for it
    IF p_call_id % 100 = 0 THEN
        PERFORM shiftboss.ai_prune(p_limit => 200);
    END IF;
END $$;

-- closed → open after failure_limit failures in a row; half-open → open or closed by its probe alone.
CREATE OR REPLACE FUNCTION shiftboss.ai_turn_circuit(
    p_provider text, p_call_id bigint, p_outcome text, p_retry_after interval, p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_outcome = 'limited' THEN  -- whatever the circuit: the server asks for it
        UPDATE shiftboss.ai_providers SET held_until = greatest(held_until, p_now + p_retry_after) WHERE provider = p_provider;
    END IF;
    IF p_outcome IN ('unavailable', 'refused') THEN
        UPDATE shiftboss.ai_providers SET
            failures = failures + 1,
            circuit = 'open', opened_at = p_now, probe_id = NULL, probe_until = NULL
        WHERE provider = p_provider AND (probe_id = p_call_id OR circuit = 'closed' AND failures + 1 >= failure_limit);
        IF NOT FOUND THEN
            UPDATE shiftboss.ai_providers SET failures = failures + 1
            WHERE provider = p_provider AND circuit = 'closed';
        END IF;
    ELSIF p_outcome IN ('ok', 'malformed', 'limited') THEN
        UPDATE shiftboss.ai_providers SET
            failures = 0, circuit = 'closed', opened_at = NULL, probe_id = NULL, probe_until = NULL
        WHERE provider = p_provider AND (circuit = 'closed' OR probe_id = p_call_id);
    ELSE
        -- the probe proved nothing: the next call is the probe
        UPDATE shiftboss.ai_providers SET circuit = 'open', probe_id = NULL, probe_until = NULL
        WHERE provider = p_provider AND probe_id = p_call_id;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.ai_add_spend(
    p_provider text, p_calls bigint, p_errors bigint, p_prompt_tokens bigint, p_completion_tokens bigint, p_cost numeric
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO shiftboss.ai_spend AS s (provider, day, calls, errors, prompt_tokens, completion_tokens, cost)
    VALUES (p_provider, shiftboss.ai_today(), p_calls, p_errors, p_prompt_tokens, p_completion_tokens, p_cost)
    ON CONFLICT (provider, day) DO UPDATE SET
        calls = s.calls + excluded.calls, errors = s.errors + excluded.errors,
        prompt_tokens = s.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = s.completion_tokens + excluded.completion_tokens, cost = s.cost + excluded.cost;
$$;

-- Totals that a process gathered: calls of providers that cost nothing, and use of the cache.
CREATE OR REPLACE FUNCTION shiftboss.ai_report(p_free jsonb, p_cache jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_free record;
BEGIN
    FOR v_free IN
        SELECT * FROM jsonb_to_recordset(p_free)
            AS f(provider text, calls bigint, errors bigint, tokens bigint, latency_ms double precision, error text)
        ORDER BY provider
    LOOP
        PERFORM shiftboss.ai_add_spend(v_free.provider, v_free.calls, v_free.errors, v_free.tokens, 0, 0);
        UPDATE shiftboss.ai_providers SET
            latency_ms = coalesce(v_free.latency_ms, latency_ms), last_error = coalesce(v_free.error, last_error),
            last_error_at = CASE WHEN v_free.error IS NOT NULL THEN shiftboss.now() ELSE last_error_at END
        WHERE provider = v_free.provider;
    END LOOP;
    INSERT INTO shiftboss.ai_cache_use AS u (day, task_type, hits, misses, errors)
    SELECT shiftboss.ai_today(), c.task_type, c.hits, c.misses, c.errors
    FROM jsonb_to_recordset(p_cache) AS c(task_type text, hits bigint, misses bigint, errors bigint)
    ORDER BY c.task_type
    ON CONFLICT (day, task_type) DO UPDATE SET
        hits = u.hits + excluded.hits, misses = u.misses + excluded.misses, errors = u.errors + excluded.errors;
END $$;

-- hit: here is the value. mine: make it, then put or release it. wait: somebody else is making it.
CREATE OR REPLACE FUNCTION shiftboss.ai_cache_take(p_key text, p_task_type text, p_owner uuid, p_lease interval)
RETURNS TABLE (state text, value jsonb) LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION shiftboss.ai_cache_get(p_key text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT value FROM shiftboss.ai_cache
    WHERE key = p_key AND value IS NOT NULL AND expires_at > shiftboss.now();
$$;

CREATE OR REPLACE FUNCTION shiftboss.ai_cache_put(p_key text, p_task_type text, p_value jsonb, p_ttl interval)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO shiftboss.ai_cache (key, task_type, value, expires_at)
    VALUES (p_key, p_task_type, p_value, shiftboss.now() + p_ttl)
    ON CONFLICT (key) DO UPDATE SET
        value = excluded.value, expires_at = excluded.expires_at, owner = NULL, claimed_until = NULL;
$$;

CREATE OR REPLACE FUNCTION shiftboss.ai_cache_release(p_key text, p_owner uuid) RETURNS void LANGUAGE sql AS $$
    DELETE FROM shiftboss.ai_cache WHERE key = p_key AND owner = p_owner AND value IS NULL;
$$;

-- Lets old rows go, a bounded number at a time; returns how many went.
CREATE OR REPLACE FUNCTION shiftboss.ai_prune(p_keep_calls interval DEFAULT '30 days', p_limit int DEFAULT 1000)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_gone int;
    v_more int;
BEGIN
    DELETE FROM shiftboss.ai_cache WHERE key IN (
        SELECT key FROM shiftboss.ai_cache WHERE expires_at <= shiftboss.now()
        ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    DELETE FROM shiftboss.ai_calls WHERE id IN (
        SELECT id FROM shiftboss.ai_calls WHERE started_at < shiftboss.now() - p_keep_calls
        ORDER BY started_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_more = ROW_COUNT;
    RETURN v_gone + v_more;
END $$;
