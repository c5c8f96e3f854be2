-- Limits and budgets of providers (in their own row) and of tenants, task types and keys (in shiftboss.ai_limits).
DROP FUNCTION IF EXISTS shiftboss.ai_window_wait(text, int, int, int, timestamptz);
DROP FUNCTION IF EXISTS shiftboss.ai_spent(text, timestamptz);

CREATE OR REPLACE FUNCTION shiftboss.ai_today() RETURNS date
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT (shiftboss.now() AT TIME ZONE 'UTC')::date $$;

-- Seconds until the next day (UTC) begins, with new budgets.
CREATE OR REPLACE FUNCTION shiftboss.ai_until_midnight(p_now timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT extract(epoch FROM (((p_now AT TIME ZONE 'UTC')::date + 1)::timestamp AT TIME ZONE 'UTC') - p_now)::double precision
$$;

-- Set the limits of a tenant, task type or key, or remove them if all are NULL. "*" applies to all names without a row.
CREATE OR REPLACE FUNCTION shiftboss.set_ai_limit(
    p_scope text, p_name text, p_daily_budget numeric DEFAULT NULL, p_requests_per_minute int DEFAULT NULL,
    p_tokens_per_minute int DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(p_daily_budget, p_requests_per_minute, p_tokens_per_minute) IS NULL THEN
        DELETE FROM shiftboss.ai_limits l WHERE l.scope = p_scope AND l.name = p_name;
        RETURN;
    END IF;
    INSERT INTO shiftboss.ai_limits AS l (scope, name, daily_budget, requests_per_minute, tokens_per_minute, updated_at)
    VALUES (p_scope, p_name, p_daily_budget, p_requests_per_minute, p_tokens_per_minute, shiftboss.now())
    ON CONFLICT (scope, name) DO UPDATE SET
        daily_budget = excluded.daily_budget, requests_per_minute = excluded.requests_per_minute,
        tokens_per_minute = excluded.tokens_per_minute, updated_at = excluded.updated_at;
END $$;

-- Release the tasks that a limit has deferred: they are checked against the new figures at once, not at midnight.
CREATE OR REPLACE FUNCTION shiftboss.ai_limit_changed() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_row   jsonb := to_jsonb(coalesce(NEW, OLD));
    v_whose text := replace(coalesce(v_row ->> 'scope', 'provider'), '_', ' ') || ' ' || CASE
        WHEN v_row ->> 'name' = '*' THEN '%'
        ELSE regexp_replace(coalesce(v_row ->> 'name', v_row ->> 'provider'), '([\\%_])', '\\\1', 'g') END;
BEGIN
    PERFORM shiftboss.release_deferred(ARRAY[
        'the budget of ' || v_whose || ' is spent until %',
        'a call of about % exceeds the daily budget of ' || v_whose || ', %',
        v_whose || ' has reached its limit (%']);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER ai_limit_changed AFTER INSERT OR UPDATE OR DELETE ON shiftboss.ai_limits
    FOR EACH ROW EXECUTE FUNCTION shiftboss.ai_limit_changed();
CREATE OR REPLACE TRIGGER ai_budget_changed AFTER UPDATE OF daily_budget ON shiftboss.ai_providers
    FOR EACH ROW WHEN (OLD.daily_budget IS DISTINCT FROM NEW.daily_budget) EXECUTE FUNCTION shiftboss.ai_limit_changed();

-- Seconds until a call of p_need tokens fits into the limits per minute of this provider, tenant, task type or key; 0 if it
-- fits now. A call that exceeds the limit on its own is admitted when no other call counts, or it would wait permanently.
CREATE OR REPLACE FUNCTION shiftboss.ai_minute_wait(
    p_scope text, p_name text, p_requests int, p_tokens int, p_need int, p_now timestamptz
) RETURNS double precision LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_wait double precision := 0;
BEGIN
    IF p_requests IS NOT NULL OR p_tokens IS NOT NULL THEN
        EXECUTE format($query$
            WITH recent AS (
                SELECT started_at,
                       count(*) OVER newer AS requests_from,
                       sum(prompt_tokens + completion_tokens) OVER newer AS tokens_from
                FROM shiftboss.ai_calls
                WHERE %I = $1 AND started_at > $5 - interval '1 minute' AND NOT free
                WINDOW newer AS (ORDER BY started_at DESC, id DESC)
            )
            SELECT coalesce(extract(epoch FROM max(started_at) + interval '1 minute' - $5), 0)
            FROM recent WHERE requests_from >= $2 OR tokens_from + $4 > $3 $query$, p_scope)
        INTO v_wait USING p_name, p_requests, p_tokens, p_need, p_now;
    END IF;
    RETURN v_wait;
END $$;

-- Spend today, including the reservations of running calls. A call that was never settled because its process died counts
-- at its estimate for the rest of its day.
CREATE OR REPLACE FUNCTION shiftboss.ai_spent(p_scope text, p_name text, p_now timestamptz) RETURNS numeric
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_day   date := (p_now AT TIME ZONE 'UTC')::date;
    v_spent numeric;
    v_open  numeric;
BEGIN
    IF p_scope = 'provider' THEN
        SELECT s.cost INTO v_spent FROM shiftboss.ai_spend s WHERE s.provider = p_name AND s.day = v_day;
    ELSE
        SELECT s.cost INTO v_spent FROM shiftboss.ai_scope_spend s
        WHERE s.scope = p_scope AND s.name = p_name AND s.day = v_day;
    END IF;
    EXECUTE format($query$
        SELECT sum(cost) FROM shiftboss.ai_calls
        WHERE outcome IS NULL AND %I = $1 AND (lease_until > $2 OR (started_at AT TIME ZONE 'UTC')::date = $3) $query$, p_scope)
    INTO v_open USING p_name, p_now, v_day;
    RETURN coalesce(v_spent, 0) + coalesce(v_open, 0);
END $$;

-- The reason why the budget does not allow a call of this cost today; NULL if it does. A budget of 0 counts as spent.
CREATE OR REPLACE FUNCTION shiftboss.ai_over_budget(
    p_scope text, p_name text, p_budget numeric, p_cost numeric, p_now timestamptz
) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN p_budget IS NULL OR p_cost = 0 THEN NULL
        WHEN p_cost > p_budget AND p_budget > 0 THEN format('a call of about $%s exceeds the daily budget of %s %s, $%s',
            round(p_cost, 4), replace(p_scope, '_', ' '), p_name, trim_scale(p_budget))
        WHEN shiftboss.ai_spent(p_scope, p_name, p_now) + p_cost > p_budget
            THEN format('the budget of %s %s is spent until 00:00 UTC', replace(p_scope, '_', ' '), p_name) END
$$;

-- Seconds that a call has to wait for its budget: infinity if it costs more than a whole day may.
CREATE OR REPLACE FUNCTION shiftboss.ai_budget_wait(p_budget numeric, p_cost numeric, p_now timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_cost > p_budget AND p_budget > 0 THEN 'infinity' ELSE shiftboss.ai_until_midnight(p_now) END
$$;

-- The reason why this tenant, task type or key may not call now, and for how long; no row if it may. Locks its spend until
-- the transaction ends, so that two calls cannot both use the rest of a budget.
CREATE OR REPLACE FUNCTION shiftboss.ai_scope_obstacle(
    p_scope text, p_name text, p_tokens int, p_cost numeric, p_now timestamptz
) RETURNS TABLE (reason text, wait_seconds double precision)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_limit shiftboss.ai_limits;
BEGIN
    SELECT * INTO v_limit FROM shiftboss.ai_limits l
    WHERE l.scope = p_scope AND l.name IN (p_name, '*') ORDER BY l.name = '*' LIMIT 1;
    IF p_name IS NULL OR v_limit.scope IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO shiftboss.ai_scope_spend AS s (scope, name, day) VALUES (p_scope, p_name, (p_now AT TIME ZONE 'UTC')::date)
    ON CONFLICT (scope, name, day) DO UPDATE SET calls = s.calls;
    reason := shiftboss.ai_over_budget(p_scope, p_name, v_limit.daily_budget, p_cost, p_now);
    IF reason IS NOT NULL THEN
        wait_seconds := shiftboss.ai_budget_wait(v_limit.daily_budget, p_cost, p_now);
        RETURN NEXT;
        RETURN;
    END IF;
    wait_seconds := shiftboss.ai_minute_wait(
        p_scope, p_name, v_limit.requests_per_minute, v_limit.tokens_per_minute, p_tokens, p_now);
    IF wait_seconds > 0 THEN
        reason := format('%s %s has reached its limit (%s)', replace(p_scope, '_', ' '), p_name,
            concat_ws(', ', v_limit.requests_per_minute || ' requests per minute', v_limit.tokens_per_minute || ' tokens per minute'));
        RETURN NEXT;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.ai_add_spend(
    p_provider text, p_calls bigint, p_errors bigint, p_prompt_tokens bigint, p_completion_tokens bigint, p_cost numeric,
    p_day date DEFAULT NULL
) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.ai_spend AS s (provider, day, calls, errors, prompt_tokens, completion_tokens, cost)
    VALUES (p_provider, coalesce(p_day, shiftboss.ai_today()), p_calls, p_errors, p_prompt_tokens, p_completion_tokens, p_cost)
    ON CONFLICT (provider, day) DO UPDATE SET
        calls = s.calls + excluded.calls, errors = s.errors + excluded.errors,
        prompt_tokens = s.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = s.completion_tokens + excluded.completion_tokens, cost = s.cost + excluded.cost;
$$;
DROP FUNCTION IF EXISTS shiftboss.ai_add_spend(text, bigint, bigint, bigint, bigint, numeric);

-- Locks tenant, task type and key in the same order as admit_call, to avoid deadlocks.
CREATE OR REPLACE FUNCTION shiftboss.ai_add_scope_spend(
    p_call shiftboss.ai_calls, p_calls bigint, p_tokens bigint, p_cost numeric
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_scope record;
BEGIN
    FOR v_scope IN
        SELECT * FROM (VALUES ('tenant', p_call.tenant), ('task_type', p_call.task_type), ('key', p_call.key)) v (scope, name)
        WHERE v.name IS NOT NULL
    LOOP
        INSERT INTO shiftboss.ai_scope_spend AS s (scope, name, day, calls, tokens, cost)
        VALUES (v_scope.scope, v_scope.name, (p_call.started_at AT TIME ZONE 'UTC')::date, p_calls, p_tokens, p_cost)
        ON CONFLICT (scope, name, day) DO UPDATE SET
            calls = s.calls + excluded.calls, tokens = s.tokens + excluded.tokens, cost = s.cost + excluded.cost;
    END LOOP;
END $$;
