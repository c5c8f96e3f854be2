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
    v record;
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
    SELECT count(*) AS done, array_agg(id) FILTER (WHERE has_dependants) AS parents,
        array_agg(id) FILTER (WHERE awaited) AS awaited,
        array_agg(task_type) FILTER (WHERE concurrency_key IS NOT NULL) AS types,
        array_agg(concurrency_key) FILTER (WHERE concurrency_key IS NOT NULL) AS keys
    INTO v FROM done;
    IF v.parents IS NOT NULL OR v.awaited IS NOT NULL OR v.types IS NOT NULL THEN
        PERFORM shiftboss.after_end(v.parents, v.awaited, v.types, v.keys);
    END IF;
    RETURN CASE WHEN v.done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases, 'Complete', NULL) END;
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

-- End attempts that did not complete: shiftboss.fail (p_kind failed), shiftboss.defer (released) and
-- shiftboss.cancelled (cancelled). Only a failed attempt is spent. p_texts are errors or reasons. Returns the stale
-- ids. One statement locks the tasks and decides what becomes of each (`report`), stores the attempts (`past`), and
-- updates the tasks (`ended`).
CREATE OR REPLACE FUNCTION shiftboss.end_attempts(p_kind text, p_ids uuid[], p_leases bigint[], p_texts text[],
    p_outcomes text[] DEFAULT NULL, p_retry boolean[] DEFAULT NULL, p_delays interval[] DEFAULT NULL) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_spent boolean := p_kind = 'failed';
    v record;
BEGIN
    WITH report AS (
        SELECT t.id, t.lease, t.attempts + 1 AS attempt, t.worker_id, t.generation_started_at,
            coalesce(u.outcome, CASE WHEN p_kind = 'released' AND u.delay > interval '0' THEN 'deferred'
                ELSE p_kind END) AS outcome,
            CASE p_kind WHEN 'cancelled' THEN coalesce(t.wait_reason, t.error_message) ELSE u.text END AS text,
            t.crashes + (coalesce(u.outcome, '') = 'crashed')::int AS crashes,
            coalesce(u.delay, CASE WHEN v_spent AND t.backoff > interval '0'
                THEN shiftboss.backoff(t.backoff, t.backoff_factor, t.backoff_max, t.attempts + 1) END,
                    interval '0') AS delay,
            CASE WHEN p_kind = 'cancelled' OR t.cancel_requested_at IS NOT NULL THEN 'Cancelled'
                 WHEN NOT v_spent THEN 'Queued'
                 WHEN u.outcome = 'crashed' AND t.crashes >= 1 THEN 'Failed'
                 WHEN u.retry IS FALSE OR t.attempts + 1 >= t.max_attempts OR t.deadline <= v_now THEN 'Failed'
                 ELSE 'Queued' END AS next
        FROM unnest(p_ids, p_leases, p_texts, p_outcomes, p_retry, p_delays)
            u (id, lease, text, outcome, retry, delay)
        JOIN public.tasks t ON t.id = ANY (ARRAY[u.id]) AND t.lease IS NOT DISTINCT FROM u.lease
            AND t.status COLLATE "C" = 'In Progress'
        ORDER BY u.id FOR NO KEY UPDATE OF t
    ), past AS (
        INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error)
        SELECT id, lease, attempt, worker_id, generation_started_at, v_now, outcome, text FROM report
    ), ended AS (
        UPDATE public.tasks t SET
            status = r.next, attempts = CASE WHEN v_spent THEN r.attempt ELSE t.attempts END, crashes = r.crashes,
            lease = NULL, lease_expires_at = CASE WHEN r.next <> 'Queued' THEN v_now END,
            worker_id = CASE WHEN NOT v_spent AND r.next <> 'Queued' THEN t.worker_id END,
            generation_started_at = CASE WHEN r.next <> 'Queued' THEN t.generation_started_at END,
            generation_processed_at = CASE WHEN r.next <> 'Queued' THEN v_now END,
            error_message = CASE WHEN r.outcome = 'crashed' AND r.next = 'Failed' AND r.crashes >= 2
                THEN 'poison: this task crashed its worker ' || r.crashes || ' times; last: ' || coalesce(r.text, '?')
                ELSE coalesce(CASE WHEN r.next = 'Cancelled' THEN t.wait_reason END,
                    CASE WHEN v_spent THEN r.text ELSE t.error_message END) END,
            run_at = CASE WHEN r.next = 'Queued' AND r.delay > interval '0' THEN v_now + r.delay ELSE t.run_at END,
            wait_reason = CASE WHEN r.next <> 'Queued' THEN NULL WHEN NOT v_spent THEN r.text
                WHEN r.delay > interval '0' THEN 'backoff after a failed attempt' END,
            updated_at = v_now
        FROM report r WHERE t.id = ANY (ARRAY[r.id])
        RETURNING t.id, t.status, t.has_dependants, t.awaited, t.task_type, t.concurrency_key, t.queue, r.delay
    )
    SELECT count(*) AS done, array_agg(id) FILTER (WHERE has_dependants AND status <> 'Queued') AS parents,
        array_agg(id) FILTER (WHERE awaited AND status <> 'Queued') AS awaited,
        array_agg(task_type) FILTER (WHERE concurrency_key IS NOT NULL) AS types,
        array_agg(concurrency_key) FILTER (WHERE concurrency_key IS NOT NULL) AS keys,
        array_agg(DISTINCT queue) FILTER (WHERE status = 'Queued' AND (v_spent OR delay <= interval '0')) AS queues
    INTO v FROM ended;
    PERFORM shiftboss.after_end(v.parents, v.awaited, v.types, v.keys, v.queues);
    RETURN CASE WHEN v.done = cardinality(p_ids) THEN '{}' ELSE shiftboss.stale(p_ids, p_leases, NULL, CASE p_kind
        WHEN 'failed' THEN p_outcomes || '{failed,timeout}'
        WHEN 'released' THEN '{deferred,released}' ELSE '{cancelled}' END) END;
END $$;

-- Fail attempts: tasks return to the queue while they have attempts left, otherwise they become Failed. Outcomes:
-- failed, timeout, lost (the worker is gone) and crashed (the task crashed its worker; the second crash makes it
-- Failed). The next attempt starts after p_delays if given (zero: immediately), otherwise after the task's backoff.
DROP FUNCTION IF EXISTS shiftboss.fail(uuid[], bigint[], text[], text[], boolean[]);  -- had no delays
CREATE OR REPLACE FUNCTION shiftboss.fail(p_ids uuid[], p_leases bigint[], p_errors text[],
    p_outcomes text[] DEFAULT NULL, p_retry boolean[] DEFAULT NULL, p_delays interval[] DEFAULT NULL) RETURNS uuid[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT shiftboss.end_attempts('failed', p_ids, p_leases, p_errors, p_outcomes, p_retry, p_delays)
$$;

-- Return tasks to the queue without spending an attempt, after p_delays or immediately. `why` shows the reason.
CREATE OR REPLACE FUNCTION shiftboss.defer(p_ids uuid[], p_leases bigint[], p_delays interval[], p_reasons text[])
RETURNS uuid[] LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT shiftboss.end_attempts('released', p_ids, p_leases, p_reasons, p_delays => p_delays)
$$;

-- Report tasks that the worker has stopped on request.
CREATE OR REPLACE FUNCTION shiftboss.cancelled(p_ids uuid[], p_leases bigint[]) RETURNS uuid[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT shiftboss.end_attempts('cancelled', p_ids, p_leases, NULL)
$$;

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
