-- A call has three steps: admit (reserve the estimated cost), the call itself, outside any transaction, and settle (record
-- the real cost). Admission locks the row of the provider, so that breaker, limits and budget hold for the whole fleet.
DROP FUNCTION IF EXISTS shiftboss.ai_obstacle(shiftboss.ai_providers, int, numeric, timestamptz);

CREATE OR REPLACE FUNCTION shiftboss.ai_configure(
    p_provider text, p_model text, p_requests_per_minute int, p_tokens_per_minute int,
    p_daily_budget numeric, p_failure_limit int, p_recovery interval
) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
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

-- The reason why this provider cannot be called now, and for how long; no row if it can.
CREATE OR REPLACE FUNCTION shiftboss.ai_provider_obstacle(
    p shiftboss.ai_providers, p_tokens int, p_cost numeric, p_now timestamptz
) RETURNS TABLE (reason text, wait_seconds double precision)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_reopens timestamptz := p.opened_at + p.recovery;
BEGIN
    IF p.circuit = 'open' AND v_reopens > p_now THEN
        reason := format('the circuit of %s is open', p.provider);
        wait_seconds := extract(epoch FROM v_reopens - p_now);
    ELSIF p.circuit = 'half-open' AND p.probe_until > p_now THEN
        reason := format('the circuit of %s is open', p.provider);
        wait_seconds := least(extract(epoch FROM p.probe_until - p_now), 5);
    ELSIF p.held_until > p_now THEN
        reason := 'rate limited';
        wait_seconds := extract(epoch FROM p.held_until - p_now);
    ELSE
        reason := shiftboss.ai_over_budget('provider', p.provider, p.daily_budget, p_cost, p_now);
        wait_seconds := CASE WHEN reason IS NOT NULL
            THEN shiftboss.ai_budget_wait(p.daily_budget, p_cost, p_now) ELSE shiftboss.ai_minute_wait('provider', p.provider, p.requests_per_minute, p.tokens_per_minute, p_tokens, p_now) END;
        reason := coalesce(reason, CASE WHEN wait_seconds > 0 THEN 'rate limited' END);
    END IF;
    IF reason IS NOT NULL THEN
        RETURN NEXT;
    END IF;
END $$;

-- Admit a call and reserve its estimated cost. Returns the id of the call, or the reason for the refusal and the seconds to
-- wait (infinity for a call that costs more than a whole daily budget). The caller chooses the id; admitting the same id again
-- has no effect. The reservation counts as spent until settle_call records the real cost.
CREATE OR REPLACE FUNCTION shiftboss.admit_call(
    p_call_id uuid, p_provider text, p_model text, p_kind text, p_task_type text, p_tokens int, p_cost numeric,
    p_lease interval, p_task_id uuid DEFAULT NULL, p_tenant text DEFAULT NULL, p_key text DEFAULT NULL,
    p_template text DEFAULT NULL, p_template_version text DEFAULT NULL
) RETURNS TABLE (call_id uuid, reason text, wait_seconds double precision)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_provider shiftboss.ai_providers;
    v_now      timestamptz;
    v_id       bigint;
BEGIN
    SELECT * INTO v_provider FROM shiftboss.ai_providers p WHERE p.provider = p_provider FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'AI provider "%" is not configured', p_provider
            USING HINT = 'call shiftboss.ai_configure first', ERRCODE = 'no_data_found';
    END IF;
    v_now := shiftboss.now();
    IF EXISTS (SELECT FROM shiftboss.ai_calls c WHERE c.call_id = p_call_id) THEN
        RETURN QUERY SELECT p_call_id, NULL::text, NULL::double precision;
        RETURN;
    END IF;
    RETURN QUERY SELECT NULL::uuid, o.reason, o.wait_seconds FROM shiftboss.ai_provider_obstacle(v_provider, p_tokens, p_cost, v_now) o;
    IF FOUND THEN RETURN; END IF;
    RETURN QUERY SELECT NULL::uuid, o.reason, o.wait_seconds FROM shiftboss.ai_scope_obstacle('tenant', p_tenant, p_tokens, p_cost, v_now) o;
    IF FOUND THEN RETURN; END IF;
    RETURN QUERY SELECT NULL::uuid, o.reason, o.wait_seconds FROM shiftboss.ai_scope_obstacle('task_type', p_task_type, p_tokens, p_cost, v_now) o;
    IF FOUND THEN RETURN; END IF;
    RETURN QUERY SELECT NULL::uuid, o.reason, o.wait_seconds FROM shiftboss.ai_scope_obstacle('key', p_key, p_tokens, p_cost, v_now) o;
    IF FOUND THEN RETURN; END IF;
    INSERT INTO shiftboss.ai_calls (call_id, provider, model, kind, task_type, task_id, tenant, key, template,
        template_version, started_at, lease_until, prompt_tokens, cost)
    VALUES (p_call_id, p_provider, p_model, p_kind, p_task_type, p_task_id, p_tenant, p_key, p_template,
        p_template_version, v_now, v_now + p_lease, p_tokens, p_cost)
    RETURNING id INTO v_id;
    IF v_provider.circuit <> 'closed' THEN
        UPDATE shiftboss.ai_providers p SET circuit = 'half-open', probe_id = v_id, probe_until = v_now + p_lease
        WHERE p.provider = p_provider;
    END IF;
    RETURN QUERY SELECT p_call_id, NULL::text, NULL::double precision;
END $$;

-- Record the outcome and cost of a call. Returns settled, already (it was settled before, nothing changes) or unknown. May be
-- called in the transaction that stores the answer. Outcomes: ok, malformed, declined, truncated (the provider works),
-- unavailable, refused (counted by the circuit breaker), limited (the provider is held for p_retry_after), unsuitable,
-- cancelled.
CREATE OR REPLACE FUNCTION shiftboss.settle_call(
    p_call_id uuid, p_outcome text, p_prompt_tokens int, p_completion_tokens int, p_cost numeric,
    p_model text DEFAULT NULL, p_latency_ms double precision DEFAULT NULL, p_error text DEFAULT NULL,
    p_retry_after interval DEFAULT NULL, p_finish_reason text DEFAULT NULL, p_prompt jsonb DEFAULT NULL,
    p_answer jsonb DEFAULT NULL, p_keep_text interval DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_call shiftboss.ai_calls;
    v_now  timestamptz := shiftboss.now();
BEGIN
    SELECT * INTO v_call FROM shiftboss.ai_calls c WHERE c.call_id = p_call_id;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    -- Lock the provider's row first, as admit_call does, to avoid deadlocks.
    PERFORM FROM shiftboss.ai_providers p WHERE p.provider = v_call.provider FOR UPDATE;
    SELECT * INTO v_call FROM shiftboss.ai_calls c WHERE c.call_id = p_call_id FOR UPDATE;
    IF v_call.outcome IS NOT NULL AND v_call.outcome <> 'lost' THEN
        RETURN 'already';
    END IF;
    UPDATE shiftboss.ai_calls c SET
        outcome = p_outcome, model = coalesce(p_model, c.model), finished_at = v_now, latency_ms = p_latency_ms,
        prompt_tokens = p_prompt_tokens, completion_tokens = p_completion_tokens, cost = p_cost, error = p_error,
        finish_reason = p_finish_reason
    WHERE c.call_id = p_call_id;
    PERFORM shiftboss.ai_book(v_call, p_prompt_tokens, p_completion_tokens, p_cost, p_error IS NOT NULL);
    PERFORM shiftboss.ai_turn_circuit(v_call.provider, v_call.id, p_outcome, p_retry_after, v_now);
    UPDATE shiftboss.ai_providers p SET
        latency_ms = CASE WHEN p_outcome IN ('ok', 'malformed')
            THEN coalesce(p.latency_ms * 0.8 + p_latency_ms * 0.2, p_latency_ms) ELSE p.latency_ms END,
        last_error = coalesce(p_error, p.last_error),
        last_error_at = CASE WHEN p_error IS NOT NULL THEN v_now ELSE p.last_error_at END,
        updated_at = v_now
    WHERE p.provider = v_call.provider;
    IF p_prompt IS NOT NULL THEN
        INSERT INTO shiftboss.ai_call_texts (call_id, prompt, answer, expires_at)
        VALUES (p_call_id, p_prompt, p_answer, v_now + coalesce(p_keep_text, interval '7 days')) ON CONFLICT DO NOTHING;
    END IF;
    RETURN 'settled';
END $$;

-- Settle calls in the transaction that stores the steps that made them. Entries are named like the parameters of settle_call,
-- with intervals in seconds. An entry that cannot be settled is skipped, so that the step is stored; its reservation counts.
CREATE OR REPLACE FUNCTION shiftboss.with_step_ai_calls(p_calls jsonb) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v record;
BEGIN
    PERFORM FROM shiftboss.ai_providers p WHERE p.provider IN (SELECT c.provider FROM shiftboss.ai_calls c
        WHERE c.call_id IN (SELECT (e ->> 'call_id')::uuid FROM jsonb_array_elements(p_calls) e)) ORDER BY p.provider FOR UPDATE;
    FOR v IN SELECT e FROM jsonb_array_elements(p_calls) e ORDER BY e ->> 'call_id' LOOP
        BEGIN
            PERFORM shiftboss.settle_call((v.e ->> 'call_id')::uuid, v.e ->> 'outcome', (v.e ->> 'prompt_tokens')::int,
                (v.e ->> 'completion_tokens')::int, (v.e ->> 'cost')::numeric, v.e ->> 'model',
                (v.e ->> 'latency_ms')::double precision, v.e ->> 'error',
                make_interval(secs => (v.e ->> 'retry_after')::double precision), v.e ->> 'finish_reason',
                nullif(v.e -> 'prompt', 'null'), nullif(v.e -> 'answer', 'null'),
                make_interval(secs => (v.e ->> 'keep_text')::double precision));
        EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
            RAISE WARNING 'AI call % is not settled: %', v.e ->> 'call_id', SQLERRM;
        END;
    END LOOP;
END $$;

-- Add the cost of a call to the spend of the day it started on. A lost call was added at its estimate: add the difference.
CREATE OR REPLACE FUNCTION shiftboss.ai_book(
    p_call shiftboss.ai_calls, p_prompt_tokens int, p_completion_tokens int, p_cost numeric, p_failed boolean
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_again boolean := p_call.outcome IS NOT NULL;
    v_cost  numeric := p_cost - CASE WHEN v_again THEN p_call.cost ELSE 0 END;
    v_gone  int := CASE WHEN v_again THEN p_call.prompt_tokens ELSE 0 END;
BEGIN
    PERFORM shiftboss.ai_add_spend(p_call.provider, (NOT v_again)::int, p_failed::int - v_again::int,
        p_prompt_tokens - v_gone, p_completion_tokens, v_cost, (p_call.started_at AT TIME ZONE 'UTC')::date);
    PERFORM shiftboss.ai_add_scope_spend(p_call, (NOT v_again)::int,
        p_prompt_tokens::bigint - v_gone + p_completion_tokens, v_cost);
END $$;

-- For workers of the previous version, which identify calls by number.
CREATE OR REPLACE FUNCTION shiftboss.ai_admit(
    p_provider text, p_model text, p_kind text, p_task_type text, p_task_id uuid,
    p_tokens int, p_cost numeric, p_lease interval
) RETURNS TABLE (call_id bigint, reason text, wait_seconds double precision)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_call uuid;
BEGIN
    SELECT a.call_id, a.reason, a.wait_seconds INTO v_call, reason, wait_seconds FROM shiftboss.admit_call(
        gen_random_uuid(), p_provider, p_model, p_kind, p_task_type, p_tokens, p_cost, p_lease, p_task_id) a;
    SELECT c.id INTO call_id FROM shiftboss.ai_calls c WHERE c.call_id = v_call;
    RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.ai_settle(
    p_call_id bigint, p_outcome text, p_model text, p_prompt_tokens int, p_completion_tokens int, p_cost numeric,
    p_latency_ms double precision, p_error text, p_retry_after interval
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shiftboss.settle_call(c.call_id, p_outcome, p_prompt_tokens, p_completion_tokens, p_cost, p_model,
        p_latency_ms, p_error, p_retry_after)
    FROM shiftboss.ai_calls c WHERE c.id = p_call_id;
END $$;

-- A closed circuit opens after failure_limit consecutive failures. Only its probe opens or closes a half-open one.
CREATE OR REPLACE FUNCTION shiftboss.ai_turn_circuit(
    p_provider text, p_call_id bigint, p_outcome text, p_retry_after interval, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_outcome = 'limited' THEN  -- in any state of the circuit
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
    ELSIF p_outcome IN ('ok', 'malformed', 'limited', 'declined', 'truncated') THEN
        UPDATE shiftboss.ai_providers SET
            failures = 0, circuit = 'closed', opened_at = NULL, probe_id = NULL, probe_until = NULL
        WHERE provider = p_provider AND (circuit = 'closed' OR probe_id = p_call_id);
    ELSE
        -- The probe was inconclusive: the next call is the probe.
        UPDATE shiftboss.ai_providers SET circuit = 'open', probe_id = NULL, probe_until = NULL
        WHERE provider = p_provider AND probe_id = p_call_id;
    END IF;
END $$;

-- Add counts that a process has buffered: calls of free providers, and use of the cache.
CREATE OR REPLACE FUNCTION shiftboss.ai_report(p_free jsonb, p_cache jsonb) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
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

-- Record calls that needed no admission: answers from the cache and from providers without limits.
CREATE OR REPLACE FUNCTION shiftboss.record_calls(p_calls jsonb, p_keep_text interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
BEGIN
    INSERT INTO shiftboss.ai_calls (call_id, provider, model, kind, task_type, task_id, tenant, key, template,
        template_version, started_at, lease_until, finished_at, outcome, prompt_tokens, completion_tokens, latency_ms,
        error, finish_reason, free)
    SELECT c.call_id, c.provider, c.model, c.kind, c.task_type, c.task_id, c.tenant, c.key, c.template, c.template_version,
        v_now, v_now, v_now, c.outcome, coalesce(c.prompt_tokens, 0), coalesce(c.completion_tokens, 0), c.latency_ms, c.error,
        c.finish_reason, true
    FROM jsonb_to_recordset(p_calls) AS c(call_id uuid, provider text, model text, kind text, task_type text, task_id uuid,
        tenant text, key text, template text, template_version text, outcome text, prompt_tokens int, completion_tokens int,
        latency_ms double precision, error text, finish_reason text)
    ON CONFLICT (call_id) DO NOTHING;
    INSERT INTO shiftboss.ai_call_texts (call_id, prompt, answer, expires_at)
    SELECT c.call_id, c.prompt, c.answer, v_now + p_keep_text
    FROM jsonb_to_recordset(p_calls) AS c(call_id uuid, prompt jsonb, answer jsonb) WHERE c.prompt IS NOT NULL
    ON CONFLICT (call_id) DO NOTHING;
END $$;

-- Delete up to p_limit old rows per table, and count calls that were never settled as spent. Returns the number of deleted rows.
CREATE OR REPLACE FUNCTION shiftboss.ai_prune(p_keep_calls interval DEFAULT '30 days', p_limit int DEFAULT 1000)
RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_gone int;
    v_more int;
    v_call shiftboss.ai_calls;
BEGIN
    FOR v_call IN
        SELECT * FROM shiftboss.ai_calls c WHERE c.outcome IS NULL AND c.lease_until < shiftboss.now() - interval '1 day'
        ORDER BY c.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE shiftboss.ai_calls c SET outcome = 'lost', error = 'never settled: its process died' WHERE c.id = v_call.id;
        PERFORM shiftboss.ai_book(v_call, v_call.prompt_tokens, 0, v_call.cost, true);
    END LOOP;
    DELETE FROM shiftboss.ai_cache WHERE key IN (
        SELECT key FROM shiftboss.ai_cache WHERE expires_at <= shiftboss.now()
        ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    DELETE FROM shiftboss.ai_call_texts WHERE call_id IN (
        SELECT t.call_id FROM shiftboss.ai_call_texts t WHERE t.expires_at <= shiftboss.now()
        ORDER BY t.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_more = ROW_COUNT;
    v_gone := v_gone + v_more;
    DELETE FROM shiftboss.ai_calls WHERE id IN (
        SELECT id FROM shiftboss.ai_calls WHERE started_at < shiftboss.now() - p_keep_calls
        ORDER BY started_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_more = ROW_COUNT;
    RETURN v_gone + v_more;
END $$;
