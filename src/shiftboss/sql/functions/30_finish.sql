-- How an attempt ends. Everything here matches the lease: a stale one changes nothing and comes back to the caller.
-- Tasks are found by id alone: the status is compared in another collation, so that no index on it can serve. With
-- statistics from a quiet moment the planner would rather walk all running tasks, and the dead entries between them.

-- Which of these leases never were, or no longer are, what the caller believes. A report that was accepted before and is
-- sent again (its answer was lost on the way) is not stale: it is simply done.
CREATE OR REPLACE FUNCTION shiftboss.stale(p_ids uuid[], p_leases bigint[]) RETURNS uuid[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(u.id), '{}') FROM unnest(p_ids, p_leases) u (id, lease)
    WHERE NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = u.id AND t.lease = u.lease)
      AND NOT EXISTS (SELECT FROM shiftboss.past_attempts a WHERE a.task_id = u.id AND a.lease = u.lease
                      AND a.outcome NOT IN ('lost', 'crashed'))
$$;

-- A batch of successes. Returns the ids whose lease was stale.
CREATE OR REPLACE FUNCTION shiftboss.complete(p_ids uuid[], p_leases bigint[], p_results jsonb[]) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
    v_parents uuid[];
    v_awaited uuid[];
    v_keys text[];
BEGIN
    WITH done AS (
        UPDATE public.tasks t SET
            status = 'Complete', result_data = u.result, error_message = NULL, generation_processed_at = v_now,
            lease_expires_at = NULL, progress = CASE WHEN t.progress IS NOT NULL THEN 100 END, updated_at = v_now
        FROM unnest(p_ids, p_leases, p_results) u (id, lease, result)
        WHERE t.id = u.id AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress'
        RETURNING t.id, t.has_dependants, t.awaited, t.task_type, t.concurrency_key
    )
    SELECT count(*), array_agg(id) FILTER (WHERE has_dependants), array_agg(id) FILTER (WHERE awaited),
        array_agg(DISTINCT task_type) FILTER (WHERE concurrency_key IS NOT NULL)
    INTO v_done, v_parents, v_awaited, v_keys FROM done;
    IF v_parents IS NOT NULL OR v_awaited IS NOT NULL OR v_keys IS NOT NULL THEN
        PERFORM shiftboss.after_end(v_parents, v_awaited, v_keys);
    END IF;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases) END;
END $$;

-- What follows an end: dependants, waiting callers, and tasks parked behind a full key.
CREATE OR REPLACE FUNCTION shiftboss.after_end(p_parents uuid[], p_awaited uuid[], p_keyed_types text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_id uuid;
BEGIN
    IF p_parents IS NOT NULL THEN
        PERFORM shiftboss.settle(p_parents);
    END IF;
    FOREACH v_id IN ARRAY coalesce(p_awaited, '{}') LOOP
        PERFORM pg_notify('shiftboss_results', v_id::text);
    END LOOP;
    IF p_keyed_types IS NOT NULL THEN
        PERFORM shiftboss.unpark(p_keyed_types);
    END IF;
END $$;

-- Let parked tasks back in where their key has room. The limit's row lock orders this against a claim that parks.
CREATE OR REPLACE FUNCTION shiftboss.unpark(p_task_types text[]) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_count int;
    v_queue text;
BEGIN
    PERFORM FROM shiftboss.limits WHERE kind = 'task_type' AND name = ANY (p_task_types) ORDER BY kind, name FOR UPDATE;
    v_count := 0;
    FOR v_queue IN
        WITH keys AS (
            SELECT k.task_type, k.concurrency_key, coalesce(l.max_per_key, 1000000)
                - (SELECT count(*) FROM public.tasks r WHERE r.status = 'In Progress' AND r.task_type = k.task_type
                   AND r.concurrency_key = k.concurrency_key) AS room
            FROM (SELECT DISTINCT task_type, concurrency_key FROM public.tasks
                  WHERE status = 'Queued' AND hold = 'limit' AND task_type = ANY (p_task_types)) k
            LEFT JOIN shiftboss.limits l ON l.kind = 'task_type' AND l.name = k.task_type
        ), freed AS (
            UPDATE public.tasks t SET hold = NULL
            FROM keys k CROSS JOIN LATERAL (
                SELECT p.id FROM public.tasks p WHERE p.status = 'Queued' AND p.hold = 'limit'
                  AND p.task_type = k.task_type AND p.concurrency_key = k.concurrency_key
                ORDER BY coalesce(p.run_at, p.created_at) LIMIT greatest(k.room, 0)) p
            WHERE t.id = p.id RETURNING t.queue
        )
        SELECT queue FROM freed GROUP BY queue
    LOOP
        v_count := v_count + 1;
        PERFORM pg_notify('shiftboss_tasks', left(v_queue, 1000));
    END LOOP;
    RETURN v_count;
END $$;

-- Parents have ended: free the children that wait for nothing more, end those that can no longer run, and go on with
-- their children. Child rows are locked first, so that two parents which end at once do not each wait for the other.
CREATE OR REPLACE FUNCTION shiftboss.settle(p_parents uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_front uuid[] := p_parents;
    v_children uuid[];
    v_bad uuid[];
    v_awaited uuid[];
    v_queue text;
BEGIN
    WHILE v_front IS NOT NULL LOOP
        SELECT array_agg(DISTINCT child_id) INTO v_children FROM shiftboss.dependencies WHERE parent_id = ANY (v_front);
        EXIT WHEN v_children IS NULL;
        PERFORM FROM public.tasks WHERE id = ANY (v_children) ORDER BY id FOR UPDATE;
        WITH gone AS (
            DELETE FROM shiftboss.dependencies d USING public.tasks p
            WHERE d.parent_id = ANY (v_front) AND p.id = d.parent_id RETURNING d.child_id, p.id AS parent_id, p.status
        ), ended AS (
            UPDATE public.tasks t SET
                status = CASE t.on_dependency_failure WHEN 'fail' THEN 'Failed' ELSE 'Cancelled' END, hold = NULL,
                error_message = format('dependency %s is %s', g.parent_id, g.status),
                generation_processed_at = v_now, updated_at = v_now
            FROM (SELECT DISTINCT ON (child_id) * FROM gone WHERE status IN ('Failed', 'Cancelled')) g
            WHERE t.id = g.child_id AND t.status = 'Queued' AND coalesce(t.on_dependency_failure, 'cancel') <> 'run'
            RETURNING t.id, t.awaited
        )
        SELECT array_agg(id), array_agg(id) FILTER (WHERE awaited) INTO v_bad, v_awaited FROM ended;
        DELETE FROM shiftboss.dependencies WHERE child_id = ANY (v_bad);
        FOR v_queue IN
            WITH free AS (
                UPDATE public.tasks t SET hold = NULL
                WHERE t.id = ANY (v_children) AND t.status = 'Queued' AND t.hold = 'dependency'
                  AND NOT EXISTS (SELECT FROM shiftboss.dependencies d WHERE d.child_id = t.id)
                RETURNING t.queue)
            SELECT queue FROM free GROUP BY queue
        LOOP
            PERFORM pg_notify('shiftboss_tasks', left(v_queue, 1000));
        END LOOP;
        PERFORM shiftboss.after_end(NULL, v_awaited, NULL);
        v_front := v_bad;
    END LOOP;
END $$;

-- Attempts that did not succeed: back to the queue while there is an attempt left, else Failed. Outcomes: failed, timeout,
-- lost (its worker is gone) and crashed (the task took its worker down; the second time it is poison).
CREATE OR REPLACE FUNCTION shiftboss.fail(p_ids uuid[], p_leases bigint[], p_errors text[], p_outcomes text[] DEFAULT NULL,
    p_retry boolean[] DEFAULT NULL) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
    v_parents uuid[];
    v_awaited uuid[];
    v_keys text[];
    v_queues text[];
    v_queue text;
BEGIN
    WITH report AS (
        SELECT t.id, t.lease, t.attempts + 1 AS attempt, t.worker_id, t.generation_started_at, coalesce(u.outcome, 'failed') AS outcome,
            u.error, t.crashes + (coalesce(u.outcome, '') = 'crashed')::int AS crashes,
            CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'Cancelled'
                 WHEN u.outcome = 'crashed' AND t.crashes >= 1 THEN 'Failed'
                 WHEN u.retry IS FALSE OR t.attempts + 1 >= t.max_attempts OR t.deadline <= v_now THEN 'Failed'
                 ELSE 'Queued' END AS next
        FROM unnest(p_ids, p_leases, p_errors, p_outcomes, p_retry) u (id, lease, error, outcome, retry)
        JOIN public.tasks t ON t.id = u.id AND t.lease IS NOT DISTINCT FROM u.lease AND t.status COLLATE "C" = 'In Progress'
        FOR NO KEY UPDATE OF t
    ), past AS (
        INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error)
        SELECT id, lease, attempt, worker_id, generation_started_at, v_now, outcome, error FROM report
    ), ended AS (
        UPDATE public.tasks t SET
            status = r.next, attempts = r.attempt, crashes = r.crashes, lease = NULL, lease_expires_at = NULL,
            error_message = CASE WHEN r.outcome = 'crashed' AND r.next = 'Failed' AND r.crashes >= 2
                THEN 'poison: this task took down its worker ' || r.crashes || ' times; last: ' || coalesce(r.error, '?')
                ELSE r.error END,
            worker_id = CASE WHEN r.next = 'Queued' THEN NULL ELSE t.worker_id END,
            generation_started_at = CASE WHEN r.next = 'Queued' THEN NULL ELSE t.generation_started_at END,
            generation_processed_at = CASE WHEN r.next = 'Queued' THEN NULL ELSE v_now END,
            run_at = CASE WHEN r.next = 'Queued' AND t.backoff > interval '0' THEN v_now
                + least(t.backoff * power(coalesce(t.backoff_factor, 2), r.attempt - 1), coalesce(t.backoff_max, '1 hour'))
                * (0.75 + random() * 0.5) ELSE t.run_at END,
            wait_reason = CASE WHEN r.next = 'Queued' AND t.backoff > interval '0' THEN 'backoff after a failed attempt' END,
            updated_at = v_now
        FROM report r WHERE t.id = r.id
        RETURNING t.id, t.status, t.has_dependants, t.awaited, t.task_type, t.concurrency_key, t.queue
    )
    SELECT count(*), array_agg(id) FILTER (WHERE has_dependants AND status <> 'Queued'),
        array_agg(id) FILTER (WHERE awaited AND status <> 'Queued'),
        array_agg(DISTINCT task_type) FILTER (WHERE concurrency_key IS NOT NULL),
        array_agg(DISTINCT queue) FILTER (WHERE status = 'Queued')
    INTO v_done, v_parents, v_awaited, v_keys, v_queues FROM ended;
    PERFORM shiftboss.after_end(v_parents, v_awaited, v_keys);
    FOREACH v_queue IN ARRAY coalesce(v_queues, '{}') LOOP
        PERFORM pg_notify('shiftboss_tasks', left(v_queue, 1000));
    END LOOP;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases) END;
END $$;

-- Give tasks back without spending an attempt: for a while (p_delays, with the reason that `why` shows) or at once.
CREATE OR REPLACE FUNCTION shiftboss.defer(p_ids uuid[], p_leases bigint[], p_delays interval[], p_reasons text[]) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
    v_parents uuid[];
    v_awaited uuid[];
    v_keys text[];
    v_queues text[];
    v_queue text;
BEGIN
    WITH report AS (
        SELECT t.id, t.lease, t.attempts + 1 AS attempt, t.worker_id, t.generation_started_at, u.delay, u.reason,
            CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'Cancelled' ELSE 'Queued' END AS next
        FROM unnest(p_ids, p_leases, p_delays, p_reasons) u (id, lease, delay, reason)
        JOIN public.tasks t ON t.id = u.id AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress' FOR NO KEY UPDATE OF t
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
            wait_reason = CASE WHEN r.next = 'Queued' THEN r.reason END, updated_at = v_now
        FROM report r WHERE t.id = r.id
        RETURNING t.id, t.status, t.has_dependants, t.awaited, t.task_type, t.concurrency_key, t.queue, r.delay
    )
    SELECT count(*), array_agg(id) FILTER (WHERE has_dependants AND status = 'Cancelled'),
        array_agg(id) FILTER (WHERE awaited AND status = 'Cancelled'),
        array_agg(DISTINCT task_type) FILTER (WHERE concurrency_key IS NOT NULL),
        array_agg(DISTINCT queue) FILTER (WHERE coalesce(delay, '0') <= interval '0')
    INTO v_done, v_parents, v_awaited, v_keys, v_queues FROM ended;
    PERFORM shiftboss.after_end(v_parents, v_awaited, v_keys);
    FOREACH v_queue IN ARRAY coalesce(v_queues, '{}') LOOP
        PERFORM pg_notify('shiftboss_tasks', left(v_queue, 1000));
    END LOOP;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases) END;
END $$;

-- The worker stopped these because somebody asked for it.
CREATE OR REPLACE FUNCTION shiftboss.cancelled(p_ids uuid[], p_leases bigint[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
    v_parents uuid[];
    v_awaited uuid[];
    v_keys text[];
BEGIN
    WITH ended AS (
        UPDATE public.tasks t SET
            status = 'Cancelled', lease_expires_at = NULL, generation_processed_at = v_now, updated_at = v_now,
            error_message = coalesce(t.wait_reason, t.error_message)
        FROM unnest(p_ids, p_leases) u (id, lease)
        WHERE t.id = u.id AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress'
        RETURNING t.*
    ), past AS (
        INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error)
        SELECT id, lease, attempts + 1, worker_id, generation_started_at, v_now, 'cancelled', error_message FROM ended
    )
    SELECT count(*), array_agg(id) FILTER (WHERE has_dependants), array_agg(id) FILTER (WHERE awaited),
        array_agg(DISTINCT task_type) FILTER (WHERE concurrency_key IS NOT NULL)
    INTO v_done, v_parents, v_awaited, v_keys FROM ended;
    PERFORM shiftboss.after_end(v_parents, v_awaited, v_keys);
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases) END;
END $$;

-- Progress of running tasks. Never goes down within an attempt. Returns the stale ids.
CREATE OR REPLACE FUNCTION shiftboss.progress(p_ids uuid[], p_leases bigint[], p_percents smallint[], p_messages text[])
RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    v_done int;
BEGIN
    UPDATE public.tasks t SET progress = greatest(t.progress, least(greatest(u.percent, 0), 99)),
        progress_message = coalesce(u.message, t.progress_message)
    FROM unnest(p_ids, p_leases, p_percents, p_messages) u (id, lease, percent, message)
    WHERE t.id = u.id AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress';
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases) END;
END $$;

-- Hold on to these for p_for from now, whatever the worker's own lease says. Returns the stale ids.
CREATE OR REPLACE FUNCTION shiftboss.extend(p_ids uuid[], p_leases bigint[], p_for interval) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    v_done int;
BEGIN
    IF p_for IS NULL OR p_for <= interval '0' THEN
        RAISE EXCEPTION 'extend needs a time greater than zero' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE public.tasks t SET lease_expires_at = shiftboss.now() + p_for
    FROM unnest(p_ids, p_leases) u (id, lease)
    WHERE t.id = u.id AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress';
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases) END;
END $$;
