-- Claim tasks. A claim takes a batch for one worker and gives each task a lease. From then on, only this lease can
-- complete, fail, defer, extend or report on the task.

-- Whether a worker meets the requirements of a task. Values are compared as JSON, which never raises an error: one
-- worker with invalid capabilities must not stop all claims.
CREATE OR REPLACE FUNCTION shiftboss.meets(p_requires jsonb, p_capabilities jsonb, p_resources jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE RETURN
    (p_requires -> 'ai_provider' IS NULL
            OR coalesce(p_capabilities -> 'ai_providers' ? (p_requires ->> 'ai_provider'), false))
       AND (p_requires -> 'features' IS NULL
            OR coalesce(p_capabilities -> 'specialized_features' @> (p_requires -> 'features'), false))
       AND (p_requires -> 'version' IS NULL
           OR coalesce(p_capabilities -> 'versions' @> (p_requires -> 'version'), false))
       AND (coalesce(p_requires -> 'gpu', 'false') = 'false'
           OR coalesce(p_resources -> 'gpu_available', 'false') = 'true')
       AND coalesce(p_requires -> 'memory_gb', '0') <= coalesce(p_resources -> 'memory_gb', '0')
       AND coalesce(p_requires -> 'cpu_cores', '0') <= coalesce(p_resources -> 'cpu_cores', '0');

-- Whether this worker may run tasks of this lane. A worker that declares no task types may run any.
CREATE OR REPLACE FUNCTION shiftboss.capable(p_worker public.workers, p_queue text, p_task_type text, p_requires jsonb)
RETURNS boolean LANGUAGE sql IMMUTABLE RETURN
    (p_worker.queues IS NULL OR p_queue = ANY (p_worker.queues))
       AND (NOT p_worker.capabilities ? 'task_types' OR p_worker.capabilities -> 'task_types' ? p_task_type)
       AND (p_requires IS NULL OR shiftboss.meets(p_requires, p_worker.capabilities, p_worker.resource_limits));

-- Whether the worker is marked for termination, by its status or by the orchestrator in its metadata.
CREATE OR REPLACE FUNCTION shiftboss.ending(p_worker public.workers) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN
    p_worker.status = 'terminated'
        OR coalesce(p_worker.metadata ->> 'orchestrator_status', '') IN ('terminating', 'terminated');

-- The limits and pauses that apply to a queue and type. PostgreSQL inlines both functions, which a SET clause would
-- prevent, so every name and operator is qualified.
CREATE OR REPLACE FUNCTION shiftboss.limits_of(p_queue text, p_task_type text) RETURNS SETOF shiftboss.limits
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM shiftboss.limits
    WHERE (kind OPERATOR(pg_catalog.=) 'queue' AND name OPERATOR(pg_catalog.=) p_queue)
       OR (kind OPERATOR(pg_catalog.=) 'task_type' AND name OPERATOR(pg_catalog.=) p_task_type)
$$;
CREATE OR REPLACE FUNCTION shiftboss.pauses_of(p_queue text, p_task_type text) RETURNS SETOF shiftboss.pauses
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM shiftboss.pauses
    WHERE (kind OPERATOR(pg_catalog.=) 'queue' AND name OPERATOR(pg_catalog.=) p_queue)
       OR (kind OPERATOR(pg_catalog.=) 'task_type' AND name OPERATOR(pg_catalog.=) p_task_type)
$$;

-- The nearest timestamp in the years 1 to 9999: clients cannot represent infinity or years BC.
CREATE OR REPLACE FUNCTION shiftboss.civil(p_moment timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE RETURN
    CASE WHEN p_moment < '0001-01-03 00:00+00' THEN '0001-01-03 00:00+00'
        WHEN p_moment > '9999-12-29 00:00+00' THEN '9999-12-29 00:00+00' ELSE p_moment END;

-- A running task as its worker receives it.
CREATE OR REPLACE FUNCTION shiftboss.as_claimed(t public.tasks) RETURNS shiftboss.claimed_task
LANGUAGE sql IMMUTABLE RETURN
    ROW(t.id, t.lease, t.task_type, t.params, t.attempts + 1, t.max_attempts, t.queue, t.priority, t.tenant, t.timeout,
        shiftboss.civil(t.deadline), shiftboss.civil(t.created_at), shiftboss.civil(coalesce(t.run_at, t.created_at)),
        t.generation_started_at, shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires), t.run_id,
        t.metadata, t.crashes)::shiftboss.claimed_task;

-- Give picked tasks to a worker. The caller has locked their rows while they were Queued.
CREATE OR REPLACE FUNCTION shiftboss.take(p_ids uuid[], p_worker text, p_lease interval)
RETURNS SETOF shiftboss.claimed_task
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_salt bigint := shiftboss.lease_salt();
BEGIN
    RETURN QUERY
    UPDATE public.tasks t SET
        status = 'In Progress', worker_id = p_worker, last_worker_id = p_worker,
        lease = shiftboss.lease_of(t.id, v_salt), lease_expires_at = v_now + p_lease,
        generation_started_at = v_now, generation_processed_at = NULL, wait_reason = NULL,
        progress = NULL, progress_message = NULL, updated_at = v_now
    WHERE t.id = ANY (p_ids)
    RETURNING (shiftboss.as_claimed(t)).*;
END $$;

-- Lanes that have tasks but no row in shiftboss.lanes. Needs one index descent for each gap between known lanes
-- (`gaps`) and one for each new lane (`found`), so it never scans the dead index entries of known lanes.
CREATE OR REPLACE FUNCTION shiftboss.new_lanes()
RETURNS TABLE (lane bigint, queue text, task_type text, priority smallint, tenant text, requires jsonb)
LANGUAGE plpgsql STABLE ROWS 1 SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH RECURSIVE gaps AS (
        SELECT k.lane AS low, coalesce(lead(k.lane) OVER (ORDER BY k.lane), 9223372036854775807) AS high
        FROM (SELECT l.lane FROM shiftboss.lanes l UNION SELECT -9223372036854775808) k
    ), found AS (
        SELECT n.*, g.high FROM gaps g CROSS JOIN LATERAL (
            SELECT shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) AS lane,
                t.queue, t.task_type, t.priority, t.tenant, t.requires
            FROM public.tasks t WHERE t.status = 'Queued' AND t.hold IS NULL
              AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) > g.low
              AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) < g.high
            ORDER BY 1, coalesce(t.run_at, t.created_at), t.id LIMIT 1) n
        UNION ALL
        SELECT n.*, f.high FROM found f CROSS JOIN LATERAL (
            SELECT shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) AS lane,
                t.queue, t.task_type, t.priority, t.tenant, t.requires
            FROM public.tasks t WHERE t.status = 'Queued' AND t.hold IS NULL
              AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) > f.lane
              AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) < f.high
            ORDER BY 1, coalesce(t.run_at, t.created_at), t.id LIMIT 1) n
    )
    SELECT f.lane, f.queue, f.task_type, f.priority, f.tenant, f.requires FROM found f;
END $$;

-- Register new lanes. Claims do this, because it would cost every enqueue a lookup.
CREATE OR REPLACE FUNCTION shiftboss.find_lanes() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss.lanes (lane, queue, task_type, priority, tenant, requires) SELECT *
        FROM shiftboss.new_lanes();
END $$;

-- All lanes, each once, without registering new ones.
CREATE OR REPLACE FUNCTION shiftboss.every_lane()
RETURNS TABLE (lane bigint, queue text, task_type text, priority smallint, tenant text, requires jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT ON (l.lane) l.lane, l.queue, l.task_type, l.priority, l.tenant, l.requires FROM shiftboss.lanes l
    UNION ALL SELECT * FROM shiftboss.new_lanes()
$$;

-- Claim up to p_limit tasks: highest priority first, then oldest, and tenants in turn by weight. p_mark_lanes and
-- p_mark_times say up to which time the caller has recently found a lane empty: the scan starts there and skips the
-- dead index entries that a long transaction keeps from being removed. They are only hints: without marks, the scan
-- starts at the beginning. Sorting is off: with statistics of an empty queue, the planner would otherwise read all dead
-- entries of another index and sort the rest. Plans are generic, because planning for each worker's capabilities costs
-- more than the claim itself. With p_incarnation, a process gets nothing once another process has registered under its
-- name. For each priority level: group the worker's lanes by whether they have limits, pick from the limited lanes
-- under the locks of their limits, then from all others at once.
CREATE OR REPLACE FUNCTION shiftboss.claim(p_worker text, p_limit int DEFAULT 1, p_mark_lanes bigint[] DEFAULT NULL,
    p_mark_times timestamptz[] DEFAULT NULL, p_lease interval DEFAULT NULL, p_incarnation uuid DEFAULT NULL)
RETURNS SETOF shiftboss.claimed_task
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    w public.workers;
    v_ids uuid[] := '{}';
    v_some uuid[];
    level record;
    narrow record;
    v_locked boolean := false;
    v_ageing interval;
BEGIN
    w := shiftboss.admit(p_worker);
    IF shiftboss.ending(w) OR w.paused OR w.draining OR p_limit < 1 OR w.incarnation <> p_incarnation THEN
        RETURN;
    END IF;
    PERFORM shiftboss.find_lanes();
    SELECT value::interval INTO v_ageing FROM shiftboss.settings WHERE key = 'ageing';
    IF v_ageing IS NOT NULL THEN
        RETURN QUERY SELECT * FROM shiftboss.claim_aged(w, p_limit, p_mark_lanes, p_mark_times, p_lease, v_ageing);
        RETURN;
    END IF;
    FOR level IN
        SELECT l.priority, array_agg(l.lane) FILTER (WHERE NOT l.limited) AS lanes,
            array_agg(coalesce(l.tenant, '')) FILTER (WHERE NOT l.limited) AS tenants,
            array_agg(coalesce(m.mark, '-infinity')) FILTER (WHERE NOT l.limited) AS marks,
            array_agg(l.lane) FILTER (WHERE l.limited) AS narrow
        FROM (SELECT DISTINCT ON (l.lane) l.*,
            EXISTS (SELECT FROM shiftboss.limits_of(l.queue, l.task_type)) AS limited
              FROM shiftboss.lanes l
              WHERE shiftboss.capable(w, l.queue, l.task_type, l.requires)
                AND NOT EXISTS (SELECT FROM shiftboss.pauses_of(l.queue, l.task_type))) l
        LEFT JOIN unnest(p_mark_lanes, p_mark_times) m (lane, mark) ON m.lane = l.lane
        GROUP BY l.priority ORDER BY l.priority DESC
    LOOP
        IF level.narrow IS NOT NULL THEN
            IF NOT v_locked THEN  -- lock the limits of all later levels too: locking level by level could deadlock
                PERFORM FROM shiftboss.limits x
                    WHERE EXISTS (SELECT FROM shiftboss.lanes l WHERE l.priority <= level.priority
                    AND ((x.kind = 'queue' AND x.name = l.queue) OR (x.kind = 'task_type' AND x.name = l.task_type))
                    AND shiftboss.capable(w, l.queue, l.task_type, l.requires))
                    ORDER BY x.kind, x.name FOR UPDATE;
                v_locked := true;
                v_now := shiftboss.now();  -- the wait for the locks does not count towards a rate
            END IF;
            FOR narrow IN SELECT DISTINCT ON (l.lane) l.lane, l.queue, l.task_type FROM shiftboss.lanes l
                          WHERE l.lane = ANY (level.narrow) LOOP
                EXIT WHEN cardinality(v_ids) >= p_limit;
                v_some := shiftboss.pick_limited(narrow.lane, narrow.queue, narrow.task_type,
                    p_limit - cardinality(v_ids), v_now);
                -- Take them now, so that the headroom of the next lane counts them.
                RETURN QUERY SELECT * FROM shiftboss.take(v_some, p_worker, p_lease);
                v_ids := v_ids || v_some;
            END LOOP;
        END IF;
        EXIT WHEN cardinality(v_ids) >= p_limit;
        IF level.lanes IS NULL THEN
            CONTINUE;
        END IF;
        v_some := shiftboss.pick(level.lanes, level.tenants, level.marks, p_limit - cardinality(v_ids), v_now);
        IF v_some IS NOT NULL THEN
            RETURN QUERY SELECT * FROM shiftboss.take(v_some, p_worker, p_lease);
            v_ids := v_ids || v_some;
        END IF;
        EXIT WHEN cardinality(v_ids) >= p_limit;
    END LOOP;
END $$;

-- Pick the oldest tasks of these lanes. Each lane is one range of the claim's index. Tasks of one tenant are picked by
-- age. Several tenants take turns by weight, in an order that changes between claims, so that claims of a single task
-- are fair too. With several lanes, candidates are chosen without locks, because locking the first tasks of all lanes
-- would block other claims. If other sessions took some of the candidates, another round replaces them.
CREATE OR REPLACE FUNCTION shiftboss.pick(p_lanes bigint[], p_tenants text[], p_marks timestamptz[], p_limit int,
    p_now timestamptz)
RETURNS uuid[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_ids uuid[] := '{}';
    v_seen uuid[] := '{}';
    v_some uuid[];
    v_got uuid[];
    v_turn text := random()::text;
BEGIN
    IF cardinality(p_lanes) = 1 THEN
        SELECT array_agg(t.id) INTO v_ids FROM (
            SELECT t.id FROM public.tasks t
            WHERE shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = p_lanes[1]
              AND t.status = 'Queued' AND t.hold IS NULL
              AND coalesce(t.run_at, t.created_at) >= p_marks[1] AND coalesce(t.run_at, t.created_at) <= p_now
            ORDER BY coalesce(t.run_at, t.created_at), t.id LIMIT p_limit FOR UPDATE SKIP LOCKED) t;
        RETURN v_ids;
    END IF;
    FOR round IN 1 .. 10 LOOP
        SELECT array_agg(c.id) INTO v_some FROM (
            SELECT x.id FROM (
                SELECT t.id, t.ready_at, l.tenant,
                    row_number() OVER (PARTITION BY l.tenant ORDER BY t.ready_at, t.id) / coalesce(n.weight, 1) AS turn
                FROM unnest(p_lanes, p_tenants, p_marks) l (lane, tenant, mark)
                CROSS JOIN LATERAL (
                    SELECT t.id, coalesce(t.run_at, t.created_at) AS ready_at FROM public.tasks t
                    WHERE shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane
                      AND t.status = 'Queued' AND t.hold IS NULL AND t.id <> ALL (v_seen)
                      AND coalesce(t.run_at, t.created_at) >= l.mark AND coalesce(t.run_at, t.created_at) <= p_now
                    ORDER BY coalesce(t.run_at, t.created_at), t.id LIMIT p_limit - cardinality(v_ids)) t
                LEFT JOIN shiftboss.tenants n ON n.name = l.tenant
            ) x
            ORDER BY x.turn, hashtext(x.tenant || v_turn), x.ready_at, x.id LIMIT p_limit - cardinality(v_ids)) c;
        v_got := ARRAY(SELECT t.id FROM public.tasks t WHERE t.id = ANY (v_some) AND t.status COLLATE "C" = 'Queued'
            AND t.hold IS NULL AND coalesce(t.run_at, t.created_at) <= p_now FOR UPDATE SKIP LOCKED);
        v_ids := v_ids || v_got;
        EXIT WHEN v_some IS NULL OR cardinality(v_got) = cardinality(v_some);
        v_seen := v_seen || v_some;
    END LOOP;
    RETURN nullif(v_ids, '{}');
END $$;

-- Claim these tasks for this worker. Limits and pauses apply.
CREATE OR REPLACE FUNCTION shiftboss.assign(p_ids uuid[], p_worker text, p_lease interval DEFAULT NULL)
RETURNS SETOF shiftboss.claimed_task
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    w public.workers;
    v_ids uuid[];
    one record;
BEGIN
    w := shiftboss.admit(p_worker);
    IF shiftboss.ending(w) OR w.paused OR w.draining THEN
        RETURN;
    END IF;
    SELECT array_agg(t.id) INTO v_ids FROM (
        SELECT t.id FROM public.tasks t
        WHERE t.id = ANY (p_ids) AND t.status = 'Queued' AND t.hold IS NULL
            AND coalesce(t.run_at, t.created_at) <= v_now
          AND shiftboss.capable(w, t.queue, t.task_type, t.requires)
          AND NOT EXISTS (SELECT FROM shiftboss.pauses_of(t.queue, t.task_type))
          AND NOT EXISTS (SELECT FROM shiftboss.limits_of(t.queue, t.task_type))
        FOR UPDATE SKIP LOCKED) t;
    RETURN QUERY SELECT * FROM shiftboss.take(v_ids, p_worker, p_lease);
    PERFORM shiftboss.lock_limits(p_ids);
    v_now := shiftboss.now();  -- the wait for the locks does not count towards a rate
    FOR one IN
        SELECT DISTINCT shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) AS lane, t.queue,
            t.task_type
        FROM public.tasks t
        WHERE t.id = ANY (p_ids) AND t.status = 'Queued'
            AND EXISTS (SELECT FROM shiftboss.limits_of(t.queue, t.task_type))
          AND shiftboss.capable(w, t.queue, t.task_type, t.requires)
          AND NOT EXISTS (SELECT FROM shiftboss.pauses_of(t.queue, t.task_type))
        ORDER BY 1
    LOOP
        RETURN QUERY SELECT * FROM shiftboss.take(shiftboss.pick_limited(one.lane, one.queue, one.task_type,
            cardinality(p_ids), v_now, p_ids), p_worker, p_lease);
    END LOOP;
END $$;

-- Lock all limits that apply to these tasks at once, in the order that all sessions use.
CREATE OR REPLACE FUNCTION shiftboss.lock_limits(p_ids uuid[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
BEGIN
    PERFORM FROM shiftboss.limits x WHERE EXISTS (SELECT FROM public.tasks t WHERE t.id = ANY (p_ids)
        AND ((x.kind = 'queue' AND x.name = t.queue) OR (x.kind = 'task_type' AND x.name = t.task_type)))
        ORDER BY x.kind, x.name FOR UPDATE;
END $$;
