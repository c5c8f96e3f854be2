-- End attempts. All functions here match the lease: a stale lease changes nothing, and its task is returned to the
-- caller. Tasks must be found by id, even if statistics are misleading, as after a quiet period or on a table that was
-- just emptied. The status is therefore compared in another collation, so that the planner cannot use an index on it
-- and scan all running tasks and dead entries. `id = ANY (ARRAY[u.id])` means `id = u.id`, but prevents a full scan of
-- the index.

-- The ids whose lease is stale. A report that was accepted before and is repeated because its answer was lost is not
-- stale: the task is in p_status with this lease, or the attempt ended in one of p_outcomes.
CREATE OR REPLACE FUNCTION shiftboss.stale(p_ids uuid[], p_leases bigint[], p_status text, p_outcomes text[])
RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_stale uuid[] := ARRAY(SELECT u.id FROM unnest(p_ids, p_leases) u (id, lease)
        WHERE NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease
            AND t.status COLLATE "C" = p_status)
          AND NOT EXISTS (SELECT FROM shiftboss.past_attempts a WHERE a.task_id = ANY (ARRAY[u.id])
              AND a.lease = u.lease
                          AND a.outcome = ANY (p_outcomes)));
BEGIN
    IF v_stale <> '{}' THEN
        PERFORM shiftboss.count_up('stale_reports', cardinality(v_stale));
    END IF;
    RETURN v_stale;
END $$;

-- Complete a batch of tasks. Returns the ids whose lease was stale. One statement updates the tasks (`done`), counts
-- them (`tallied`, see 31_tally.sql) and collects what after_end needs.
CREATE OR REPLACE FUNCTION shiftboss.complete(p_ids uuid[], p_leases bigint[], p_results jsonb[]) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
    v_parents uuid[];
    v_awaited uuid[];
    v_types text[];
    v_keys text[];
BEGIN
    WITH done AS (
        UPDATE public.tasks t SET
            status = 'Complete', result_data = u.result, error_message = NULL, generation_processed_at = v_now,
            lease_expires_at = v_now, progress = CASE WHEN t.progress IS NOT NULL THEN 100 END, updated_at = v_now
        FROM (SELECT * FROM unnest(p_ids, p_leases, p_results) u (id, lease, result) ORDER BY id) u
        WHERE t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress'
        RETURNING t.id, t.has_dependants, t.awaited, t.task_type, t.concurrency_key, t.worker_id,
            shiftboss.seconds_between(t.generation_started_at, v_now) AS seconds
    ), tallied AS (
        INSERT INTO shiftboss.tallies (step, worker_id, task_type, status, bucket, in_table, ended, seconds, least,
            most)
        SELECT shiftboss.tally_step(v_now), worker_id, task_type, 'Complete',
            coalesce(shiftboss.time_bucket(seconds), -1), count(*),
            count(*), coalesce(sum(seconds), 0), min(seconds), max(seconds)
        FROM done GROUP BY worker_id, task_type, shiftboss.time_bucket(seconds)
    )
    SELECT count(*), array_agg(id) FILTER (WHERE has_dependants), array_agg(id) FILTER (WHERE awaited),
        array_agg(task_type) FILTER (WHERE concurrency_key IS NOT NULL),
        array_agg(concurrency_key) FILTER (WHERE concurrency_key IS NOT NULL)
    INTO v_done, v_parents, v_awaited, v_types, v_keys FROM done;
    IF v_parents IS NOT NULL OR v_awaited IS NOT NULL OR v_types IS NOT NULL THEN
        PERFORM shiftboss.after_end(v_parents, v_awaited, v_types, v_keys);
    END IF;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases, 'Complete', NULL) END;
END $$;

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
    v_queues text[];
BEGIN
    WITH held AS MATERIALIZED (
        SELECT name FROM shiftboss.limits WHERE kind = 'task_type' AND name = ANY (p_types) ORDER BY name FOR UPDATE)
    UPDATE shiftboss.limits l SET name = l.name FROM held h WHERE l.kind = 'task_type' AND l.name = h.name;
    WITH keys AS (
        SELECT k.task_type, k.key, coalesce(l.max_per_key, 1000000)
            - (SELECT count(*) FROM public.tasks r WHERE r.status = 'In Progress' AND r.task_type = k.task_type
               AND r.concurrency_key = k.key) AS room
        FROM (SELECT DISTINCT u.task_type, u.key FROM unnest(p_types, p_keys) u (task_type, key)) k
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

-- The delay after an attempt: grows by the factor, varies randomly by a quarter, and never exceeds p_most. Computed in
-- seconds with a bounded exponent, because an interval could overflow and make the rescue of the whole fleet fail.
CREATE OR REPLACE FUNCTION shiftboss.backoff(p_base interval, p_factor real, p_most interval, p_attempt int)
RETURNS interval
LANGUAGE sql VOLATILE RETURN
    make_interval(secs => (0.75 + random() * 0.5) * least(
        extract(epoch FROM coalesce(p_most, '1 hour'))::double precision / 1.25,
        extract(epoch FROM p_base)::double precision
            * exp(least((p_attempt - 1) * ln(coalesce(p_factor, 2)::double precision), 50))));

-- Fail attempts: tasks return to the queue while they have attempts left, otherwise they become Failed. Outcomes:
-- failed, timeout, lost (the worker is gone) and crashed (the task crashed its worker; the second crash makes it
-- Failed). The next attempt starts after p_delays if given (zero: immediately), otherwise after the task's backoff.
-- Returns the stale ids. One statement locks the tasks and decides what becomes of each (`report`), stores the
-- attempts (`past`), and updates the tasks (`ended`).
DROP FUNCTION IF EXISTS shiftboss.fail(uuid[], bigint[], text[], text[], boolean[]);  -- had no delays
CREATE OR REPLACE FUNCTION shiftboss.fail(p_ids uuid[], p_leases bigint[], p_errors text[],
    p_outcomes text[] DEFAULT NULL,
    p_retry boolean[] DEFAULT NULL, p_delays interval[] DEFAULT NULL) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
    v_parents uuid[];
    v_awaited uuid[];
    v_types text[];
    v_keys text[];
    v_queues text[];
BEGIN
    WITH report AS (
        SELECT t.id, t.lease, t.attempts + 1 AS attempt, t.worker_id, t.generation_started_at,
            coalesce(u.outcome, 'failed') AS outcome,
            u.error, t.crashes + (coalesce(u.outcome, '') = 'crashed')::int AS crashes,
            coalesce(u.delay, CASE WHEN t.backoff > interval '0'
                THEN shiftboss.backoff(t.backoff, t.backoff_factor, t.backoff_max, t.attempts + 1) END,
                    interval '0') AS delay,
            CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'Cancelled'
                 WHEN u.outcome = 'crashed' AND t.crashes >= 1 THEN 'Failed'
                 WHEN u.retry IS FALSE OR t.attempts + 1 >= t.max_attempts OR t.deadline <= v_now THEN 'Failed'
                 ELSE 'Queued' END AS next
        FROM unnest(p_ids, p_leases, p_errors, p_outcomes, p_retry, p_delays) u (id, lease, error, outcome, retry,
            delay)
        JOIN public.tasks t ON t.id = ANY (ARRAY[u.id]) AND t.lease IS NOT DISTINCT FROM u.lease
            AND t.status COLLATE "C" = 'In Progress'
        ORDER BY u.id FOR NO KEY UPDATE OF t
    ), past AS (
        INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error)
        SELECT id, lease, attempt, worker_id, generation_started_at, v_now, outcome, error FROM report
    ), ended AS (
        UPDATE public.tasks t SET
            status = r.next, attempts = r.attempt, crashes = r.crashes, lease = NULL,
            lease_expires_at = CASE WHEN r.next <> 'Queued' THEN v_now END,
            error_message = CASE WHEN r.outcome = 'crashed' AND r.next = 'Failed' AND r.crashes >= 2
                THEN 'poison: this task crashed its worker ' || r.crashes || ' times; last: ' || coalesce(r.error, '?')
                WHEN r.next = 'Cancelled' THEN coalesce(t.wait_reason, r.error) ELSE r.error END,
            worker_id = NULL, generation_started_at = CASE WHEN r.next = 'Queued' THEN NULL
                ELSE t.generation_started_at END,
            generation_processed_at = CASE WHEN r.next = 'Queued' THEN NULL ELSE v_now END,
            run_at = CASE WHEN r.next = 'Queued' AND r.delay > interval '0' THEN v_now + r.delay ELSE t.run_at END,
            wait_reason = CASE WHEN r.next = 'Queued' AND r.delay > interval '0'
                THEN 'backoff after a failed attempt' END,
            updated_at = v_now
        FROM report r WHERE t.id = ANY (ARRAY[r.id])
        RETURNING t.id, t.status, t.has_dependants, t.awaited, t.task_type, t.concurrency_key, t.queue
    )
    SELECT count(*), array_agg(id) FILTER (WHERE has_dependants AND status <> 'Queued'),
        array_agg(id) FILTER (WHERE awaited AND status <> 'Queued'),
        array_agg(task_type) FILTER (WHERE concurrency_key IS NOT NULL),
        array_agg(concurrency_key) FILTER (WHERE concurrency_key IS NOT NULL),
        array_agg(DISTINCT queue) FILTER (WHERE status = 'Queued')
    INTO v_done, v_parents, v_awaited, v_types, v_keys, v_queues FROM ended;
    PERFORM shiftboss.after_end(v_parents, v_awaited, v_types, v_keys, v_queues);
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.stale(p_ids, p_leases, NULL, p_outcomes || '{failed,timeout}') END;
END $$;

-- Return tasks to the queue without spending an attempt, after p_delays or immediately. `why` shows the reason.
-- Returns the stale ids. The steps are those of shiftboss.fail.
CREATE OR REPLACE FUNCTION shiftboss.defer(p_ids uuid[], p_leases bigint[], p_delays interval[], p_reasons text[])
RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
    v_parents uuid[];
    v_awaited uuid[];
    v_types text[];
    v_keys text[];
    v_queues text[];
BEGIN
    WITH report AS (
        SELECT t.id, t.lease, t.attempts + 1 AS attempt, t.worker_id, t.generation_started_at, u.delay, u.reason,
            CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'Cancelled' ELSE 'Queued' END AS next
        FROM unnest(p_ids, p_leases, p_delays, p_reasons) u (id, lease, delay, reason)
        JOIN public.tasks t ON t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress'
        ORDER BY u.id FOR NO KEY UPDATE OF t
    ), past AS (
        INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error)
        SELECT id, lease, attempt, worker_id, generation_started_at, v_now,
            CASE WHEN delay > interval '0' THEN 'deferred' ELSE 'released' END, reason FROM report
    ), ended AS (
        UPDATE public.tasks t SET
            status = r.next, worker_id = CASE WHEN r.next = 'Queued' THEN NULL ELSE t.worker_id END,
            lease = NULL, lease_expires_at = NULL,
            generation_started_at = CASE WHEN r.next = 'Queued' THEN NULL ELSE t.generation_started_at END,
            generation_processed_at = CASE WHEN r.next = 'Queued' THEN NULL ELSE v_now END,
            run_at = CASE WHEN r.delay > interval '0' THEN v_now + r.delay ELSE t.run_at END,
            error_message = CASE WHEN r.next = 'Cancelled' THEN coalesce(t.wait_reason, t.error_message)
                ELSE t.error_message END,
            wait_reason = CASE WHEN r.next = 'Queued' THEN r.reason END, updated_at = v_now
        FROM report r WHERE t.id = ANY (ARRAY[r.id])
        RETURNING t.id, t.status, t.has_dependants, t.awaited, t.task_type, t.concurrency_key, t.queue, r.delay
    )
    SELECT count(*), array_agg(id) FILTER (WHERE has_dependants AND status = 'Cancelled'),
        array_agg(id) FILTER (WHERE awaited AND status = 'Cancelled'),
        array_agg(task_type) FILTER (WHERE concurrency_key IS NOT NULL),
        array_agg(concurrency_key) FILTER (WHERE concurrency_key IS NOT NULL),
        array_agg(DISTINCT queue) FILTER (WHERE coalesce(delay, '0') <= interval '0')
    INTO v_done, v_parents, v_awaited, v_types, v_keys, v_queues FROM ended;
    PERFORM shiftboss.after_end(v_parents, v_awaited, v_types, v_keys, v_queues);
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.stale(p_ids, p_leases, NULL, '{deferred,released}') END;
END $$;

-- Report tasks that the worker has stopped on request. Returns the stale ids.
CREATE OR REPLACE FUNCTION shiftboss.cancelled(p_ids uuid[], p_leases bigint[]) RETURNS uuid[] LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
    v_parents uuid[];
    v_awaited uuid[];
    v_types text[];
    v_keys text[];
BEGIN
    WITH ended AS (
        UPDATE public.tasks t SET
            status = 'Cancelled', lease_expires_at = NULL, generation_processed_at = v_now, updated_at = v_now,
            error_message = coalesce(t.wait_reason, t.error_message)
        FROM (SELECT * FROM unnest(p_ids, p_leases) u (id, lease) ORDER BY id) u
        WHERE t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress'
        RETURNING t.*
    ), past AS (
        INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error)
        SELECT id, lease, attempts + 1, worker_id, generation_started_at, v_now, 'cancelled', error_message FROM ended
    )
    SELECT count(*), array_agg(id) FILTER (WHERE has_dependants), array_agg(id) FILTER (WHERE awaited),
        array_agg(task_type) FILTER (WHERE concurrency_key IS NOT NULL),
        array_agg(concurrency_key) FILTER (WHERE concurrency_key IS NOT NULL)
    INTO v_done, v_parents, v_awaited, v_types, v_keys FROM ended;
    PERFORM shiftboss.after_end(v_parents, v_awaited, v_types, v_keys);
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.stale(p_ids, p_leases, NULL, '{cancelled}') END;
END $$;

-- Store the progress of running tasks, which never decreases within an attempt. Skips tasks that another session has
-- locked: the next report contains a newer figure, and other tasks do not have to wait. Returns the stale ids.
CREATE OR REPLACE FUNCTION shiftboss.progress(p_ids uuid[], p_leases bigint[], p_percents smallint[],
    p_messages text[])
RETURNS uuid[] LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
BEGIN
    WITH free AS MATERIALIZED (
        SELECT t.id FROM public.tasks t WHERE t.id = ANY (p_ids) ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE public.tasks t SET progress = greatest(t.progress, least(greatest(u.percent, 0), 99)),
        progress_message = coalesce(u.message, t.progress_message), updated_at = v_now
    FROM unnest(p_ids, p_leases, p_percents, p_messages) u (id, lease, percent, message) JOIN free f ON f.id = u.id
    WHERE t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress';
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.stale(p_ids, p_leases, 'In Progress', NULL) END;
END $$;

-- Extend the leases of tasks to p_for from now, even if their worker sends no heartbeats. Never shortens a lease.
-- Returns the stale ids.
CREATE OR REPLACE FUNCTION shiftboss.extend(p_ids uuid[], p_leases bigint[], p_for interval) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_done int;
BEGIN
    IF p_for IS NULL OR p_for <= interval '0' THEN
        RAISE EXCEPTION 'the duration of an extension must be positive' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE public.tasks t SET lease_expires_at = greatest(t.lease_expires_at, shiftboss.now() + p_for),
        updated_at = shiftboss.now()
    FROM (SELECT * FROM unnest(p_ids, p_leases) u (id, lease) ORDER BY id) u
    WHERE t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress';
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.stale(p_ids, p_leases, 'In Progress', NULL) END;
END $$;
