-- The consequences of ended tasks for dependent and parked tasks, and the order in which tasks are locked.

-- Handle the consequences of ended attempts: dependent tasks, waiting callers, tasks parked at a limit per key
-- (p_types and p_keys, pairwise), and sleeping workers if these queues have tasks again.
CREATE OR REPLACE FUNCTION shiftboss.after_end(p_parents uuid[], p_awaited uuid[], p_types text[], p_keys text[],
    p_queues text[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id uuid;
BEGIN
    IF p_parents IS NOT NULL THEN
        PERFORM shiftboss.settle(p_parents);
    END IF;
    FOREACH v_id IN ARRAY coalesce(p_awaited, '{}') LOOP
        PERFORM pg_notify('shiftboss_results', v_id::text);
    END LOOP;
    IF p_types IS NOT NULL THEN
        PERFORM shiftboss.unpark(p_types, p_keys);
    END IF;
    PERFORM shiftboss.wake(p_queues);
END $$;

-- Notify sleeping workers if there are queues with new tasks: see 05_sleepers.sql.
CREATE OR REPLACE FUNCTION shiftboss.wake(p_queues text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(p_queues) > 0 THEN
        PERFORM shiftboss.ring();
    END IF;
END $$;

-- Release parked tasks whose key is below its limit: p_types and p_keys, pairwise. The row lock of the limit
-- serialises this with claims that park tasks. Updating the row makes such a claim at REPEATABLE READ fail if its
-- snapshot is older. Parked tasks that another session has locked are skipped, because waiting could deadlock. `keys`
-- computes the room of each key, `freed` releases as many of its oldest tasks.
CREATE OR REPLACE FUNCTION shiftboss.unpark(p_types text[], p_keys text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_types text[];
    v_keys text[];
    v_queues text[];
BEGIN
    WITH held AS MATERIALIZED (
        SELECT name FROM shiftboss.limits WHERE kind = 'task_type' AND name = ANY (p_types) ORDER BY name FOR UPDATE)
    UPDATE shiftboss.limits l SET name = l.name FROM held h WHERE l.kind = 'task_type' AND l.name = h.name;
    SELECT array_agg(task_type), array_agg(key) INTO v_types, v_keys FROM (
        SELECT DISTINCT u.task_type, u.key FROM unnest(p_types, p_keys) u (task_type, key)) k;
    WITH keys AS (
        SELECT k.task_type, k.key, coalesce(l.max_per_key, 1000000) - k.running AS room
        FROM unnest(v_types, v_keys, shiftboss.running_with(v_types, v_keys)) k (task_type, key, running)
        LEFT JOIN shiftboss.limits l ON l.kind = 'task_type' AND l.name = k.task_type
    ), freed AS (
        UPDATE public.tasks t SET hold = NULL, updated_at = v_now
        FROM keys k CROSS JOIN LATERAL (
            SELECT p.id FROM public.tasks p WHERE p.status = 'Queued' AND p.hold = 'limit'
              AND p.task_type = k.task_type AND p.concurrency_key = k.key
            ORDER BY coalesce(p.run_at, p.created_at) LIMIT greatest(k.room, 0) FOR UPDATE SKIP LOCKED) p
        WHERE t.id = ANY (ARRAY[p.id]) RETURNING t.queue
    )
    SELECT array_agg(DISTINCT queue) INTO v_queues FROM freed;
    PERFORM shiftboss.wake(v_queues);
END $$;

-- Handle ended parents: release children that wait for nothing else, end children that can no longer run, and continue
-- with their children. Child rows are locked first, so that two parents that end concurrently do not deadlock. After a
-- failure, all descendants that it may reach are locked. Every waiting child is updated, released or not: another
-- parent that ends at REPEATABLE READ with an older snapshot then gets a serialization error; otherwise both could
-- leave the child held. Each round deletes the dependencies on the ended tasks (`gone`), ends children of failed
-- parents (`ended`), and releases children without other dependencies (`told`).
CREATE OR REPLACE FUNCTION shiftboss.settle(p_parents uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_front uuid[] := p_parents;
    v_children uuid[];
    v_bad uuid[];
    v_awaited uuid[];
    v_queues text[];
BEGIN
    IF EXISTS (SELECT FROM public.tasks WHERE id = ANY (p_parents) AND status COLLATE "C" <> 'Complete') THEN
        PERFORM shiftboss.lock_down(p_parents);
    END IF;
    WHILE v_front IS NOT NULL LOOP
        PERFORM shiftboss.end_waits(v_front);
        SELECT array_agg(DISTINCT child_id) INTO v_children FROM shiftboss.dependencies
            WHERE parent_id = ANY (v_front);
        EXIT WHEN v_children IS NULL;
        PERFORM shiftboss.lock_tasks(v_children);
        WITH gone AS (
            DELETE FROM shiftboss.dependencies d WHERE d.parent_id = ANY (v_front) RETURNING d.child_id, d.parent_id,
                coalesce((SELECT p.status FROM public.tasks p WHERE p.id = ANY (ARRAY[d.parent_id])),
                    'deleted') AS status
        ), ended AS (
            UPDATE public.tasks t SET
                status = CASE t.on_dependency_failure WHEN 'fail' THEN 'Failed' ELSE 'Cancelled' END, hold = NULL,
                error_message = format('dependency %s is %s', g.parent_id, g.status),
                generation_processed_at = v_now, updated_at = v_now
            FROM (SELECT DISTINCT ON (child_id) * FROM gone WHERE status IN ('Failed', 'Cancelled', 'deleted')) g
            WHERE t.id = ANY (ARRAY[g.child_id]) AND t.status = 'Queued'
                AND coalesce(t.on_dependency_failure, 'cancel') <> 'run'
            RETURNING t.id, t.awaited
        )
        SELECT array_agg(id), array_agg(id) FILTER (WHERE awaited) INTO v_bad, v_awaited FROM ended;
        DELETE FROM shiftboss.dependencies WHERE child_id = ANY (v_bad);
        WITH told AS (
            UPDATE public.tasks t SET updated_at = v_now, hold = CASE WHEN NOT c.free THEN t.hold END,
                params = CASE WHEN c.free THEN shiftboss.with_results(t.params, t.metadata, t.depends_on)
                    ELSE t.params END
            FROM (SELECT x.id, (SELECT true FROM shiftboss.dependencies d WHERE d.child_id = x.id
                LIMIT 1) IS NULL AS free
                  FROM unnest(v_children) x (id)) c
            WHERE t.id = ANY (ARRAY[c.id]) AND t.status COLLATE "C" = 'Queued' AND t.hold = 'dependency'
                RETURNING t.queue, t.hold)
        SELECT array_agg(DISTINCT queue) INTO v_queues FROM told WHERE hold IS NULL;
        PERFORM shiftboss.after_end(NULL, v_awaited, NULL, NULL, v_queues);
        v_front := v_bad;
    END LOOP;
END $$;

-- Lock tasks in the order that all sessions use: running tasks by id, as in batches of reports; then queued tasks by
-- age, because parents are older than their children. A worker's row is locked before tasks; limits are locked after
-- them, by kind and name. A session that holds limits skips locked tasks and never waits for one. Ended tasks are not
-- locked: a session with an older snapshot would still treat them as running and lock them in another order.
CREATE OR REPLACE FUNCTION shiftboss.lock_tasks(p_ids uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
BEGIN
    PERFORM FROM public.tasks t WHERE t.id = ANY (p_ids) AND t.status COLLATE "C" IN ('Queued', 'In Progress')
        ORDER BY t.status COLLATE "C" <> 'In Progress', CASE WHEN t.status COLLATE "C" <> 'In Progress'
            THEN t.created_at END, t.id
        FOR UPDATE;
END $$;

-- Which of these tasks cannot be reported on now, because another session has locked the task, a child of it, or the
-- limit that its end affects. The locks that this function takes are released at the end of its transaction.
CREATE OR REPLACE FUNCTION shiftboss.locked(p_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_free uuid[] := ARRAY(SELECT id FROM public.tasks WHERE id = ANY (p_ids) FOR NO KEY UPDATE SKIP LOCKED);
    v_children uuid[] := ARRAY(SELECT t.id FROM public.tasks t WHERE t.id IN (
        SELECT child_id FROM shiftboss.dependencies WHERE parent_id = ANY (p_ids)) FOR NO KEY UPDATE SKIP LOCKED);
    v_limits text[] := ARRAY(SELECT l.name FROM shiftboss.limits l WHERE l.kind = 'task_type' AND l.name IN (
        SELECT task_type FROM public.tasks WHERE id = ANY (p_ids) AND concurrency_key IS NOT NULL)
            FOR UPDATE SKIP LOCKED);
BEGIN
    RETURN ARRAY(
        SELECT t.id FROM public.tasks t WHERE t.id = ANY (p_ids) AND (t.id <> ALL (v_free)
            OR EXISTS (SELECT FROM shiftboss.dependencies d JOIN public.tasks c ON c.id = ANY (ARRAY[d.child_id])
                       WHERE d.parent_id = t.id AND c.id <> ALL (v_children))
            OR t.concurrency_key IS NOT NULL AND EXISTS (SELECT FROM shiftboss.limits l
                       WHERE l.kind = 'task_type' AND l.name = t.task_type AND l.name <> ALL (v_limits))));
END $$;

-- Lock these tasks and all their descendants. The tasks are locked first, so that no session can add children
-- meanwhile.
CREATE OR REPLACE FUNCTION shiftboss.lock_down(p_ids uuid[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
BEGIN
    PERFORM shiftboss.lock_tasks(p_ids);
    PERFORM shiftboss.lock_tasks(ARRAY(
        WITH RECURSIVE below (id) AS (
            SELECT child_id FROM shiftboss.dependencies WHERE parent_id = ANY (p_ids)
            UNION SELECT d.child_id FROM below b CROSS JOIN LATERAL (
                SELECT e.child_id FROM shiftboss.dependencies e WHERE e.parent_id = b.id OFFSET 0) d)
        SELECT id FROM below));
END $$;
