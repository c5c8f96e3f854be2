-- The rescuer: recover tasks of lost workers, expire tasks, and release forgotten holds.

-- Run one round of the rescuer: expire queued tasks past their deadline, mark workers without heartbeats as inactive
-- (`gone`) and requeue their tasks, and release forgotten holds. A task is lost when the lease of its worker has
-- expired, and its own lease too if it has one. Skips rows that another session has locked; the next round handles
-- them. Returns what it did.
CREATE OR REPLACE FUNCTION shiftboss.rescue(p_limit int DEFAULT 1000)
RETURNS TABLE (workers_lost int, tasks_rescued int, tasks_expired int) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_gone text[];
    v_ids uuid[];
    v_leases bigint[];
    v_workers text[];
BEGIN
    tasks_expired := shiftboss.expire(p_limit);
    WITH gone AS (
        UPDATE public.workers SET status = 'inactive' WHERE id IN (
            SELECT w.id FROM public.workers w WHERE w.status = 'active' AND w.lease_expires_at IS NOT NULL
              AND shiftboss.alive_until(w, v_now) < v_now AND NOT shiftboss.answered_for(w)
            FOR UPDATE SKIP LOCKED) RETURNING id)
    SELECT coalesce(array_agg(id), '{}') INTO v_gone FROM gone;
    SELECT coalesce(array_agg(id), '{}'), array_agg(lease), array_agg(worker_id) INTO v_ids, v_leases, v_workers FROM (
        SELECT t.id, t.lease, t.worker_id FROM public.tasks t
        WHERE t.status = 'In Progress' AND (t.lease_expires_at IS NULL OR t.lease_expires_at < v_now)
          AND NOT EXISTS (SELECT FROM public.workers w WHERE w.id = t.worker_id
              AND (shiftboss.alive_until(w, v_now) >= v_now OR shiftboss.answered_for(w)))
          AND (t.worker_id = ANY (v_gone)
              OR coalesce(t.generation_started_at, t.created_at) < v_now - interval '5 seconds')
        LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) t;
    workers_lost := cardinality(v_gone);
    tasks_rescued := cardinality(v_ids);
    IF tasks_rescued > 0 THEN
        PERFORM shiftboss.judge(v_ids, v_leases,
            ARRAY(SELECT CASE WHEN w = ANY (v_gone) THEN 'its worker stopped beating'
            ELSE 'its lease ran out' END FROM unnest(v_workers) w), 'lost');
    END IF;
    PERFORM shiftboss.note('worker.lost', g, NULL, NULL, jsonb_build_object('reason', 'no heartbeat in time',
        'tasks', cardinality(array_positions(v_workers, g)))) FROM unnest(v_gone) g;
    PERFORM shiftboss.unpark_all();
    PERFORM shiftboss.mend_holds(p_limit);
    RETURN NEXT;
END $$;

-- Release tasks that are held for a dependency but have none left. Only a manual DELETE or an earlier version leaves
-- such tasks. Both sides are read in index order, so that this stays cheap with many held tasks.
CREATE OR REPLACE FUNCTION shiftboss.mend_holds(p_limit int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_nestloop = off
SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_ids uuid[];
    v_queues text[];
BEGIN
    SELECT array_agg(x.id) INTO v_ids FROM (
        SELECT t.id FROM public.tasks t WHERE t.status = 'Queued' AND t.hold = 'dependency'
          AND NOT EXISTS (SELECT FROM shiftboss.dependencies d WHERE d.child_id = t.id) LIMIT p_limit) x;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    v_ids := ARRAY(SELECT t.id FROM public.tasks t WHERE t.id = ANY (v_ids) AND t.status = 'Queued'
        AND t.hold = 'dependency'
        FOR UPDATE SKIP LOCKED);
    WITH freed AS (  -- check again under the lock, because a parent may have been added since
        UPDATE public.tasks t SET hold = NULL, updated_at = v_now WHERE t.id = ANY (v_ids)
          AND NOT EXISTS (SELECT FROM shiftboss.dependencies d WHERE d.child_id = t.id) RETURNING t.queue)
    SELECT array_agg(DISTINCT queue) INTO v_queues FROM freed;
    PERFORM shiftboss.wake(v_queues);
    RETURN cardinality(v_ids);
END $$;

-- Release parked tasks of every key, of these types or of all. `parked` walks from key to key in the index, regardless
-- of the number of tasks per key. Skips limits that another session has locked: that session releases its own keys.
CREATE OR REPLACE FUNCTION shiftboss.unpark_all(p_types text[] DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_types text[];
    v_keys text[];
    v_held text[];
BEGIN
    WITH RECURSIVE parked AS (
        (SELECT t.task_type, t.concurrency_key FROM public.tasks t WHERE t.status = 'Queued' AND t.hold = 'limit'
         ORDER BY t.task_type, t.concurrency_key LIMIT 1)
        UNION ALL
        SELECT n.* FROM parked p CROSS JOIN LATERAL (
            SELECT t.task_type, t.concurrency_key FROM public.tasks t WHERE t.status = 'Queued' AND t.hold = 'limit'
              AND (t.task_type, t.concurrency_key) > (p.task_type, p.concurrency_key)
            ORDER BY t.task_type, t.concurrency_key LIMIT 1) n)
    SELECT array_agg(task_type), array_agg(concurrency_key) INTO v_types, v_keys
    FROM parked WHERE p_types IS NULL OR task_type = ANY (p_types);
    v_held := ARRAY(SELECT name FROM shiftboss.limits WHERE kind = 'task_type' AND name = ANY (v_types)
        ORDER BY name FOR UPDATE SKIP LOCKED);
    SELECT array_agg(k.type), array_agg(k.key) INTO v_types, v_keys FROM unnest(v_types, v_keys) k (type, key)
    WHERE k.type = ANY (v_held)
       OR NOT EXISTS (SELECT FROM shiftboss.limits l WHERE l.kind = 'task_type' AND l.name = k.type);
    IF v_types IS NOT NULL THEN
        PERFORM shiftboss.unpark(v_types, v_keys);
    END IF;
END $$;

-- Fail queued tasks whose deadline has passed. Returns their number.
CREATE OR REPLACE FUNCTION shiftboss.expire(p_limit int DEFAULT 1000) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v record;
BEGIN
    WITH late AS (
        SELECT id FROM public.tasks WHERE status = 'Queued' AND deadline <= shiftboss.now()
        ORDER BY deadline LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), ended AS (
        UPDATE public.tasks t SET status = 'Failed', hold = NULL, generation_processed_at = shiftboss.now(),
            updated_at = shiftboss.now(), error_message = 'its deadline passed before it could run'
        FROM late WHERE t.id = ANY (ARRAY[late.id]) RETURNING t.id, t.has_dependants, t.awaited
    ), edges AS (
        DELETE FROM shiftboss.dependencies d USING ended e WHERE d.child_id = ANY (ARRAY[e.id])
    )
    SELECT count(*) AS ended, array_agg(id) FILTER (WHERE has_dependants) AS parents,
        array_agg(id) FILTER (WHERE awaited) AS awaited
    INTO v FROM ended;
    PERFORM shiftboss.after_end(v.parents, v.awaited, NULL, NULL);
    RETURN v.ended;
END $$;
