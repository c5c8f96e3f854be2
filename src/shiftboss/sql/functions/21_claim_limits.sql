-- Limits at a claim: how many tasks of a lane may start, and which.

DROP FUNCTION IF EXISTS shiftboss.headroom(text, text, timestamptz);

-- How many more tasks of this lane its limits allow now. Rates per key are checked for each task (pick_limited). The
-- caller holds the row locks of the limits, so the result stays valid.
CREATE OR REPLACE FUNCTION shiftboss.headroom(p_queue text, p_task_type text, p_now timestamptz, p_tenant text)
RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_room int := 1000000;
    l shiftboss.limits;
BEGIN
    FOR l IN SELECT * FROM shiftboss.limits_of(p_queue, p_task_type) LOOP
        IF l.max_running IS NOT NULL THEN
            v_room := least(v_room, l.max_running - (SELECT count(*) FROM public.tasks WHERE status = 'In Progress'
                AND CASE l.kind WHEN 'queue' THEN queue ELSE task_type END = l.name)::int);
        END IF;
        IF l.rate_per = 'tenant' AND p_tenant IS NOT NULL THEN
            v_room := least(v_room, floor(shiftboss.tokens_of(l, p_tenant, p_now))::int);
        ELSIF l.rate IS NOT NULL AND l.rate_per = 'all' THEN
            v_room := least(v_room, floor(shiftboss.tokens(l, p_now))::int);
        END IF;
    END LOOP;
    RETURN greatest(v_room, 0);
END $$;

-- The tokens of a bucket that gains `rate` tokens per period and holds at most `rate`. Its time never runs backwards.
CREATE OR REPLACE FUNCTION shiftboss.tokens(p_limit shiftboss.limits, p_now timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE RETURN
    least(p_limit.rate, coalesce(p_limit.tokens + p_limit.rate
        * greatest(extract(epoch FROM p_now - p_limit.refilled_at), 0) / extract(epoch FROM p_limit.rate_period),
            p_limit.rate));

-- The same for one key or tenant, which has its own bucket. A missing bucket is full.
CREATE OR REPLACE FUNCTION shiftboss.tokens_of(p_limit shiftboss.limits, p_key text, p_now timestamptz)
RETURNS double precision
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT least(p_limit.rate,
        b.tokens + p_limit.rate * greatest(extract(epoch FROM p_now - b.refilled_at), 0)
            / extract(epoch FROM p_limit.rate_period))
        FROM shiftboss.rate_buckets b WHERE b.kind = p_limit.kind AND b.name = p_limit.name AND b.key = p_key),
            p_limit.rate)
$$;

-- Count tasks against the buckets of these keys (p_per: key or tenant), and delete buckets that are full again.
CREATE OR REPLACE FUNCTION shiftboss.spend_each(p_queue text, p_task_type text, p_per text, p_keys text[],
    p_now timestamptz)
RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.rate_buckets AS b (kind, name, key, tokens, refilled_at)
    SELECT l.kind, l.name, k.key, shiftboss.tokens_of(l, k.key, p_now) - k.n, p_now
    FROM shiftboss.limits_of(p_queue, p_task_type) l, (SELECT x AS key, count(*) AS n FROM unnest(p_keys) x
        WHERE x IS NOT NULL GROUP BY x) k
    WHERE l.rate IS NOT NULL AND l.rate_per = p_per
    ON CONFLICT (kind, name, key) DO UPDATE SET tokens = excluded.tokens,
        refilled_at = greatest(b.refilled_at, excluded.refilled_at);
    DELETE FROM shiftboss.rate_buckets b USING shiftboss.limits_of(p_queue, p_task_type) l
    -- In another collation, so that the planner finds the full buckets by age and does not read those of all keys.
    WHERE b.kind COLLATE "C" = l.kind AND b.name COLLATE "C" = l.name
        AND b.refilled_at < p_now - l.rate_period - interval '1 minute';
$$;

-- Count these tasks against the limits. Limits without a rate are updated too: a claim at REPEATABLE READ whose
-- snapshot does not include these tasks then gets a serialization error instead of exceeding the limit.
CREATE OR REPLACE FUNCTION shiftboss.spend(p_queue text, p_task_type text, p_count int, p_now timestamptz) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE shiftboss.limits l
    SET tokens = CASE WHEN l.rate IS NOT NULL AND l.rate_per = 'all' THEN shiftboss.tokens(l, p_now) - p_count END,
        refilled_at = CASE WHEN l.rate IS NOT NULL AND l.rate_per = 'all' THEN greatest(l.refilled_at, p_now) END
    WHERE (l.kind = 'queue' AND l.name = p_queue) OR (l.kind = 'task_type' AND l.name = p_task_type)
$$;

-- How many tasks of each type and key (pairwise) run now. The order and enable_sort make the planner use the index of
-- these columns, whatever the statistics are: on a table that had no running tasks, every index of them costs the
-- same, and the others are scanned once per key.
CREATE OR REPLACE FUNCTION shiftboss.running_with(p_types text[], p_keys text[]) RETURNS bigint[] LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
    RETURN ARRAY(SELECT (SELECT count(*) FROM (
            SELECT FROM public.tasks r WHERE r.status = 'In Progress' AND r.task_type = u.task_type
                AND r.concurrency_key >= u.key AND r.concurrency_key <= u.key
            ORDER BY r.concurrency_key LIMIT 1000000) x)
        FROM unnest(p_types, p_keys) u (task_type, key));
END $$;

-- Pick tasks from a lane that has limits. A task whose key is at its limit is parked (hold = 'limit'): it leaves the
-- claim's index until a task with its key ends, so claims do not check it again and again. A task whose key has used
-- up its rate becomes due when a token is available. p_only restricts the choice to these tasks. Each round: read and
-- lock the next tasks of the lane (`heads`) or those of p_only (`wanted`), decide which fit the limit per key
-- (`judged`), and compute when a token is available (`timed`).
CREATE OR REPLACE FUNCTION shiftboss.pick_limited(p_lane bigint, p_queue text, p_task_type text, p_limit int,
    p_now timestamptz,
    p_only uuid[] DEFAULT NULL) RETURNS uuid[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_tenant text := (SELECT tenant FROM shiftboss.lanes WHERE lane = p_lane LIMIT 1);
    v_room int := least(p_limit, shiftboss.headroom(p_queue, p_task_type, p_now, v_tenant));
    v_per_key int := (SELECT max_per_key FROM shiftboss.limits WHERE kind = 'task_type' AND name = p_task_type);
    v_rates text[] := ARRAY(SELECT rate_per FROM shiftboss.limits_of(p_queue, p_task_type) WHERE rate IS NOT NULL);
    v_rated boolean := 'key' = ANY (v_rates);
    v_picked uuid[] := '{}';
    v_seen uuid[];
    v_seen_keys text[];
    v_ready timestamptz[];
    v_running bigint[];
    v_full uuid[];
    v_late uuid[];
    v_due timestamptz[];
    v_some uuid[];
    v_keys text[];
    v_all_keys text[] := '{}';
    v_started jsonb := '{}';  -- how many tasks of each key the earlier rounds have picked
    v_parked boolean := false;
BEGIN
    FOR round IN 1 .. 20 LOOP
        EXIT WHEN v_room <= 0;
        WITH heads AS (
            SELECT t.id, t.concurrency_key, coalesce(t.run_at, t.created_at) AS ready_at FROM public.tasks t
            WHERE p_only IS NULL AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = p_lane
              AND t.status = 'Queued' AND t.hold IS NULL AND t.id <> ALL (v_picked)
              AND coalesce(t.run_at, t.created_at) <= p_now
            ORDER BY coalesce(t.run_at, t.created_at), t.id
            LIMIT CASE WHEN v_per_key IS NULL AND NOT v_rated THEN v_room ELSE v_room + 200 END
            FOR UPDATE SKIP LOCKED
        ), wanted AS (
            SELECT t.id, t.concurrency_key, coalesce(t.run_at, t.created_at) AS ready_at FROM public.tasks t
            WHERE t.id = ANY (p_only) AND t.id <> ALL (v_picked)
              AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = p_lane
              AND t.status COLLATE "C" = 'Queued' AND t.hold IS NULL AND coalesce(t.run_at, t.created_at) <= p_now
            FOR UPDATE SKIP LOCKED
        ), seen AS (
            SELECT * FROM heads UNION ALL SELECT * FROM wanted
        )
        SELECT array_agg(id), array_agg(concurrency_key), array_agg(ready_at) INTO v_seen, v_seen_keys, v_ready
        FROM seen;
        EXIT WHEN v_seen IS NULL;
        IF v_per_key IS NOT NULL THEN
            v_running := shiftboss.running_with(array_fill(p_task_type, ARRAY[cardinality(v_seen)]), v_seen_keys);
        END IF;
        WITH judged AS (
            SELECT s.id, s.concurrency_key, s.ready_at, v_per_key IS NULL OR s.concurrency_key IS NULL
                OR s.running + coalesce((v_started ->> s.concurrency_key)::int, 0)
                    + row_number() OVER (PARTITION BY s.concurrency_key ORDER BY s.ready_at, s.id) <= v_per_key AS fits
            FROM unnest(v_seen, v_seen_keys, v_ready, v_running) s (id, concurrency_key, ready_at, running)
        ), timed AS (
            SELECT j.*, CASE WHEN j.fits THEN least(r.most, (row_number() OVER (PARTITION BY j.concurrency_key, j.fits
                -- at most one period, because the limit may be raised
                ORDER BY j.ready_at, j.id) - r.tokens) * r.every) END AS late
            FROM judged j LEFT JOIN LATERAL (
                SELECT min(shiftboss.tokens_of(l, j.concurrency_key, p_now)) AS tokens,
                    max(l.rate_period / l.rate) AS every, max(l.rate_period) AS most
                FROM shiftboss.limits_of(p_queue, p_task_type) l WHERE v_rated AND l.rate_per = 'key'
            ) r ON j.concurrency_key IS NOT NULL
        )
        SELECT (array_agg(id ORDER BY ready_at, id) FILTER (WHERE fits
            AND coalesce(late <= interval '0', true)))[1:v_room],
            (array_agg(concurrency_key ORDER BY ready_at, id) FILTER (WHERE fits
                AND coalesce(late <= interval '0', true)))[1:v_room],
            array_agg(id) FILTER (WHERE NOT fits), array_agg(id) FILTER (WHERE late > interval '0'),
            array_agg(p_now + late) FILTER (WHERE late > interval '0')
        INTO v_some, v_keys, v_full, v_late, v_due FROM timed;
        v_picked := v_picked || coalesce(v_some, '{}');
        v_room := v_room - coalesce(cardinality(v_some), 0);
        IF v_per_key IS NOT NULL AND v_room > 0 AND v_some IS NOT NULL THEN
            v_all_keys := v_all_keys || v_keys;
            SELECT coalesce(jsonb_object_agg(k.key, k.n), '{}') INTO v_started FROM (
                SELECT x AS key, count(*) AS n FROM unnest(v_all_keys) x WHERE x IS NOT NULL GROUP BY x) k;
        END IF;
        IF v_rated AND v_some IS NOT NULL THEN
            PERFORM shiftboss.spend_each(p_queue, p_task_type, 'key', v_keys, p_now);
        END IF;
        IF v_late IS NOT NULL THEN
            UPDATE public.tasks t SET run_at = l.due, wait_reason = 'limit reached', updated_at = p_now
            FROM unnest(v_late, v_due) l (id, due) WHERE t.id = l.id;
        END IF;
        EXIT WHEN v_full IS NULL AND v_late IS NULL;
        UPDATE public.tasks SET hold = 'limit', updated_at = p_now WHERE id = ANY (v_full);
        v_parked := true;
    END LOOP;
    IF v_parked OR cardinality(v_picked) > 0 THEN
        PERFORM shiftboss.spend(p_queue, p_task_type, cardinality(v_picked), p_now);
    END IF;
    IF 'tenant' = ANY (v_rates) AND cardinality(v_picked) > 0 THEN
        PERFORM shiftboss.spend_each(p_queue, p_task_type, 'tenant',
            array_fill(v_tenant, ARRAY[cardinality(v_picked)]), p_now);
    END IF;
    RETURN v_picked;
END $$;
