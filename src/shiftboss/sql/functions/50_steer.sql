-- Operations on tasks: cancel, retry, pause, wait for results, prune, and explain why a task waits.

-- Cancel queued tasks immediately, and ask running tasks to stop, at the latest with the next heartbeat of their
-- worker. All rows that this may update are locked first, in the common order: a task that fails meanwhile would
-- otherwise be queued again without a request to stop. A caller whose transaction conflicts with another gets a
-- deadlock error and can retry. The children that a task waits for are cancelled too.
CREATE OR REPLACE FUNCTION shiftboss.cancel(p_ids uuid[], p_reason text DEFAULT NULL)
RETURNS TABLE (id uuid, status text, cancelling boolean) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_parents uuid[];
    v_awaited uuid[];
    v_worker text;
    v_ids uuid[] := shiftboss.with_children(p_ids);
BEGIN
    PERFORM shiftboss.lock_down(v_ids);
    IF shiftboss.with_children(p_ids) <> v_ids THEN  -- a task started to wait for children meanwhile
        v_ids := shiftboss.with_children(p_ids);
        PERFORM shiftboss.lock_down(v_ids);
    END IF;
    WITH ended AS (
        UPDATE public.tasks t SET status = 'Cancelled', hold = NULL, generation_processed_at = v_now,
            updated_at = v_now,
            error_message = CASE WHEN t.id = ANY (p_ids) THEN coalesce(p_reason, t.error_message)
                ELSE 'the task that waited for it was cancelled' END
        WHERE t.id = ANY (v_ids) AND t.status COLLATE "C" = 'Queued' RETURNING t.id, t.has_dependants, t.awaited
    ), edges AS (
        DELETE FROM shiftboss.dependencies d USING ended e WHERE d.child_id = ANY (ARRAY[e.id])
    )
    SELECT array_agg(e.id) FILTER (WHERE e.has_dependants), array_agg(e.id) FILTER (WHERE e.awaited)
    INTO v_parents, v_awaited FROM ended e;
    PERFORM shiftboss.after_end(v_parents, v_awaited, NULL, NULL);
    FOR v_worker IN
        WITH asked AS (
            UPDATE public.tasks t SET cancel_requested_at = coalesce(t.cancel_requested_at, v_now), updated_at = v_now,
                wait_reason = CASE WHEN t.id = ANY (p_ids) THEN coalesce(p_reason, t.wait_reason)
                    ELSE 'the task that waited for it was cancelled' END
            WHERE t.id = ANY (v_ids) AND t.status COLLATE "C" = 'In Progress' RETURNING t.worker_id)
        SELECT DISTINCT a.worker_id FROM asked a WHERE a.worker_id IS NOT NULL
    LOOP
        PERFORM pg_notify('shiftboss_orders', v_worker);
    END LOOP;
    RETURN QUERY SELECT t.id, t.status, t.cancel_requested_at IS NOT NULL AND t.status = 'In Progress'
        FROM public.tasks t WHERE t.id = ANY (p_ids);
END $$;

-- Enqueue failed and cancelled tasks again, with all their attempts. Results of steps are kept, so that nothing is
-- paid for twice; p_from drops those of that step and of later ones, p_restart drops all. The tasks wait again for
-- unfinished parents, but not for failed ones. Returns the ids that were requeued. Skips tasks whose dedup_key is in
-- use (of several with the same key, the newest is requeued) and tasks of a run, which are retried as a new run: a
-- call for one such task raises an error. Callers that conflict get a deadlock error and can retry.
DROP FUNCTION IF EXISTS shiftboss.retry(uuid[], text);  -- had one parameter fewer
CREATE OR REPLACE FUNCTION shiftboss.retry(p_ids uuid[], p_from text DEFAULT NULL, p_restart boolean DEFAULT false)
RETURNS uuid[] LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_ids uuid[];
    v_queues text[];
BEGIN
    PERFORM shiftboss.lock_tasks(ARRAY(SELECT unnest(t.depends_on) FROM public.tasks t WHERE t.id = ANY (p_ids)));
    PERFORM FROM public.tasks t WHERE t.id = ANY (p_ids) AND t.status COLLATE "C" IN ('Failed', 'Cancelled')
        ORDER BY t.id FOR UPDATE;
    v_ids := shiftboss.reserve_keys(ARRAY(
        SELECT DISTINCT ON (coalesce(t.dedup_key, t.id::text)) t.id FROM public.tasks t
        WHERE t.id = ANY (p_ids) AND t.status IN ('Failed', 'Cancelled')
            AND (t.run_id IS NULL OR cardinality(p_ids) = 1)
        ORDER BY coalesce(t.dedup_key, t.id::text), t.created_at DESC));
    PERFORM shiftboss.forget_steps(v_ids, p_from, p_restart);
    WITH again AS (
        UPDATE public.tasks t SET status = 'Queued', attempts = 0, crashes = 0, worker_id = NULL, lease = NULL,
            generation_started_at = NULL, generation_processed_at = NULL, cancel_requested_at = NULL, hold = NULL,
            run_at = NULL, wait_reason = NULL, progress = NULL, progress_message = NULL, updated_at = v_now,
            deadline = CASE WHEN t.deadline > v_now THEN t.deadline END
        WHERE t.id = ANY (v_ids) RETURNING t.queue
    ) SELECT array_agg(DISTINCT queue) INTO v_queues FROM again;
    WITH parents AS MATERIALIZED (  -- updated in any case: see await_parents
        UPDATE public.tasks p SET has_dependants = true, updated_at = v_now
        WHERE p.status COLLATE "C" IN ('Queued', 'In Progress')
          AND p.id = ANY (ARRAY(SELECT unnest(t.depends_on) FROM public.tasks t WHERE t.id = ANY (v_ids)))
              RETURNING p.id
    )
    INSERT INTO shiftboss.dependencies (parent_id, child_id)
    SELECT p.id, t.id FROM public.tasks t JOIN parents p ON p.id = ANY (t.depends_on) WHERE t.id = ANY (v_ids)
    ON CONFLICT DO NOTHING;
    UPDATE public.tasks t SET hold = 'dependency' WHERE t.id = ANY (v_ids)
        AND (SELECT true FROM shiftboss.dependencies d WHERE d.child_id = t.id LIMIT 1);
    UPDATE public.tasks t SET params = shiftboss.with_results(t.params, t.metadata, t.depends_on)
    WHERE t.id = ANY (v_ids) AND t.hold IS NULL AND t.metadata ? 'shiftboss.results';
    PERFORM shiftboss.wake(v_queues);
    RETURN v_ids;
END $$;

-- Make tasks due that wait for a time: scheduled, deferred or backing off. Suspended tasks go on waiting. Returns the
-- ids of those that are due now.
CREATE OR REPLACE FUNCTION shiftboss.run_now(p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_ids uuid[];
    v_queues text[];
BEGIN
    PERFORM FROM public.tasks t WHERE t.id = ANY (p_ids) AND t.status COLLATE "C" = 'Queued' ORDER BY t.id FOR UPDATE;
    WITH due AS (
        UPDATE public.tasks t SET run_at = v_now, wait_reason = NULL, updated_at = v_now
        WHERE t.id = ANY (p_ids) AND t.status COLLATE "C" = 'Queued' AND coalesce(t.run_at, t.created_at) > v_now
            AND (t.hold IS NULL OR t.hold IN ('dependency', 'limit'))
        RETURNING t.id, t.queue
    ) SELECT coalesce(array_agg(id), '{}'), array_agg(DISTINCT queue) INTO v_ids, v_queues FROM due;
    PERFORM shiftboss.wake(v_queues);
    RETURN v_ids;
END $$;

-- Reserve the dedup_keys of these ended tasks until the end of the transaction, and return the tasks whose key was
-- free. A placeholder is inserted for each key, because only INSERT supports ON CONFLICT, and deleted immediately: a
-- session that wants the key meanwhile waits for this transaction.
CREATE OR REPLACE FUNCTION shiftboss.reserve_keys(p_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_places uuid[];
    v_keys text[];
BEGIN
    WITH placed AS (
        INSERT INTO public.tasks AS p (status, task_type, queue, priority, tenant, requires, dedup_key)
        SELECT 'In Progress', t.task_type, t.queue, t.priority, t.tenant, t.requires, t.dedup_key FROM public.tasks t
        WHERE t.id = ANY (p_ids) AND t.dedup_key IS NOT NULL ORDER BY t.dedup_key COLLATE "C"
        ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL AND status IN ('Queued', 'In Progress') DO NOTHING
        RETURNING p.id, p.dedup_key
    ) SELECT array_agg(id), array_agg(dedup_key) INTO v_places, v_keys FROM placed;
    DELETE FROM public.tasks WHERE id = ANY (v_places);
    RETURN ARRAY(SELECT id FROM public.tasks WHERE id = ANY (p_ids)
        AND (dedup_key IS NULL OR dedup_key = ANY (v_keys)));
END $$;

-- Pause a queue or a task type (p_kind: 'queue' or 'task_type'). Returns false if it was paused already.
CREATE OR REPLACE FUNCTION shiftboss.pause(p_kind text, p_name text, p_reason text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss.pauses (kind, name, reason) VALUES (p_kind, p_name, p_reason) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM shiftboss.note(p_kind || '.paused', NULL, NULL, NULL,
            jsonb_build_object('name', p_name, 'reason', p_reason));
    END IF;
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.resume(p_kind text, p_name text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM shiftboss.pauses WHERE kind = p_kind AND name = p_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM shiftboss.note(p_kind || '.resumed', NULL, NULL, NULL, jsonb_build_object('name', p_name));
    PERFORM pg_notify('shiftboss_tasks', CASE p_kind WHEN 'queue' THEN left(p_name, 1000) ELSE '*' END);
    RETURN true;
END $$;

-- Return the results of tasks, and request a notification on channel shiftboss_results when the unfinished ones end.
CREATE OR REPLACE FUNCTION shiftboss.watch(p_ids uuid[])
RETURNS TABLE (id uuid, status text, result_data jsonb, error_message text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_queues text[];
BEGIN
    IF cardinality(p_ids) > 1 THEN
        PERFORM shiftboss.lock_tasks(ARRAY(SELECT t.id FROM public.tasks t
            WHERE t.id = ANY (p_ids) AND t.status IN ('Queued', 'In Progress') AND NOT t.awaited));
    END IF;
    WITH marked AS (
        UPDATE public.tasks t SET awaited = true, updated_at = v_now
        WHERE t.id = ANY (p_ids) AND t.status IN ('Queued', 'In Progress') AND NOT t.awaited RETURNING t.queue,
            t.status, t.hold)
    SELECT array_agg(DISTINCT m.queue) INTO v_queues FROM marked m WHERE m.status = 'Queued' AND m.hold IS NULL;
    PERFORM shiftboss.wake(v_queues);  -- a claim may have skipped a task while its row was locked here
    RETURN QUERY SELECT t.id, t.status, t.result_data, t.error_message FROM public.tasks t WHERE t.id = ANY (p_ids);
END $$;

-- Delete up to p_limit tasks that ended longer than p_older ago, and return their number. Skips locked rows. Rows are
-- deleted by ctid, because looking each of them up by id would cost as much as deleting it.
CREATE OR REPLACE FUNCTION shiftboss.prune(p_older interval, p_limit int DEFAULT 1000) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET jit = off AS $$
DECLARE
    v_before timestamptz := shiftboss.now() - p_older;
    v_ids uuid[];
BEGIN
    WITH gone AS (
        DELETE FROM public.tasks t WHERE t.ctid = ANY (ARRAY(
            SELECT x.ctid FROM public.tasks x
            WHERE x.status IN ('Complete', 'Failed', 'Cancelled') AND x.generation_processed_at < v_before
            ORDER BY x.generation_processed_at LIMIT p_limit FOR UPDATE SKIP LOCKED))
        RETURNING t.id)
    SELECT array_agg(id) INTO v_ids FROM gone;
    DELETE FROM shiftboss.past_attempts WHERE task_id = ANY (v_ids);
    DELETE FROM shiftboss.steps WHERE task_id = ANY (v_ids);
    DELETE FROM shiftboss.parts WHERE task_id = ANY (v_ids);
    DELETE FROM shiftboss.task_logs WHERE task_id = ANY (v_ids);
    RETURN coalesce(cardinality(v_ids), 0);
END $$;

-- Clean up the small tables: delete empty and duplicate lanes, old events and old statistics. The lanes of running and
-- held tasks stay, because the tasks may return to them.
DROP FUNCTION IF EXISTS shiftboss.mend_lanes();  -- from a version in which claims did not discover lanes
CREATE OR REPLACE FUNCTION shiftboss.tidy(p_older interval DEFAULT '7 days') RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM shiftboss.lanes l WHERE l.created_at < shiftboss.now() - interval '1 day'
        AND NOT EXISTS (SELECT FROM public.tasks t WHERE t.status = 'Queued' AND t.hold IS NULL
            AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane)
        AND l.lane <> ALL (ARRAY(
            SELECT DISTINCT shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires)
                FROM public.tasks t
            WHERE t.status = 'In Progress' OR (t.status = 'Queued' AND t.hold IS NOT NULL)));
    DELETE FROM shiftboss.lanes l USING shiftboss.lanes k WHERE l.lane = k.lane AND l.ctid > k.ctid;
    DELETE FROM shiftboss.events WHERE at < shiftboss.now() - p_older;
    DELETE FROM shiftboss.worker_totals WHERE step < shiftboss.now() - interval '8 days';
    DELETE FROM shiftboss.type_totals WHERE step < shiftboss.now() - interval '8 days';
    DELETE FROM shiftboss.unique_keys WHERE until < shiftboss.now();
    PERFORM shiftboss.tidy_stats(p_older);
    PERFORM shiftboss.tidy_steps();
    PERFORM shiftboss.tidy_errors(p_older);
    PERFORM shiftboss.tidy_alerts(p_older);
END $$;

-- Merge old minutes into one row per worker and type at -infinity, so that counters never decrease while the worker
-- exists.
CREATE OR REPLACE FUNCTION shiftboss.tidy_stats(p_older interval) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM shiftboss.stats_slots WHERE slot < shiftboss.now() - p_older;
    DELETE FROM shiftboss.stats s WHERE s.minute = '-infinity'
        AND NOT EXISTS (SELECT FROM public.workers w WHERE w.id = s.worker_id);
    DELETE FROM shiftboss.work_totals t WHERE t.at < shiftboss.now() - interval '1 hour'
        AND NOT EXISTS (SELECT FROM public.workers w WHERE w.id = t.worker_id AND w.status = 'active');
    WITH old AS (
        DELETE FROM shiftboss.stats WHERE minute > '-infinity' AND minute < shiftboss.now() - p_older RETURNING *)
    SELECT shiftboss.add_stats(array_agg(ROW('-infinity'::timestamptz, x.*)::shiftboss.stats)) FROM (
        SELECT o.worker_id, o.queue, o.task_type, sum(o.completed)::bigint, sum(o.failed)::bigint, sum(o.seconds),
            shiftboss.sum_buckets(o.buckets)
        FROM old o WHERE EXISTS (SELECT FROM public.workers w WHERE w.id = o.worker_id) GROUP BY 1, 2, 3) x
$$;

-- Make deferred tasks due now whose reason matches one of these LIKE patterns. Returns their number.
CREATE OR REPLACE FUNCTION shiftboss.release_deferred(p_reasons text[]) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_queues text[];
BEGIN
    WITH waiting AS (
        SELECT t.id FROM public.tasks t
        WHERE t.status = 'Queued' AND t.hold IS NULL AND t.run_at > v_now AND t.wait_reason LIKE ANY (p_reasons)
        ORDER BY t.id FOR UPDATE SKIP LOCKED
    ), due AS (
        UPDATE public.tasks t SET run_at = v_now, wait_reason = NULL, updated_at = v_now
        FROM waiting w WHERE t.id = w.id RETURNING t.queue
    ) SELECT array_agg(queue) INTO v_queues FROM due;
    PERFORM shiftboss.wake(v_queues);
    RETURN coalesce(cardinality(v_queues), 0);
END $$;

-- Explain why a task waits: one row per reason, with advice. For a task that does not wait, one row with its status.
-- Checks holds, the start time, pauses, limits, versions and workers in turn. Without any other reason, the task is
-- behind older tasks.
CREATE OR REPLACE FUNCTION shiftboss.why(p_id uuid) RETURNS TABLE (reason text, detail text, advice text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    t public.tasks;
    v_now timestamptz := shiftboss.now();
    p record;
    l shiftboss.limits;
    v_running int;
    v_found boolean := false;
BEGIN
    SELECT * INTO t FROM public.tasks WHERE id = p_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no task %', p_id USING ERRCODE = 'no_data_found',
            HINT = 'It may have been pruned; `shiftboss tasks list` lists tasks.';
    END IF;
    IF t.status NOT IN ('Queued', 'In Progress', 'Complete', 'Failed', 'Cancelled') THEN
        reason := 'unusable';
        detail := format('its status "%s" is not a valid status', t.status);
        advice := format('if it should run: UPDATE tasks SET status = ''Queued'' WHERE id = ''%s''; or delete it',
            t.id);
        RETURN NEXT;
        RETURN;
    ELSIF t.status <> 'Queued' THEN
        reason := lower(t.status);
        detail := CASE t.status
            WHEN 'In Progress' THEN format('running on %s since %s%s', t.worker_id, t.generation_started_at,
                CASE WHEN t.cancel_requested_at IS NOT NULL THEN ', asked to stop' ELSE '' END)
            ELSE format('ended at %s%s', t.generation_processed_at,
                coalesce(': ' || split_part(t.error_message, E'\n', 1), '')) END;
        advice := CASE t.status WHEN 'Failed' THEN coalesce(
                (regexp_match(t.error_message, '.*\nhint: ([^\n]+)'))[1] || '; then run it again: ', '')
                || 'shiftboss tasks retry ' || t.id
            WHEN 'Cancelled' THEN 'shiftboss tasks retry ' || t.id ELSE 'nothing to do' END;
        RETURN NEXT;
        RETURN;
    END IF;
    FOR p IN SELECT x.id, x.status FROM shiftboss.dependencies d JOIN public.tasks x ON x.id = ANY (ARRAY[d.parent_id])
             WHERE d.child_id = p_id LIMIT 10 LOOP
        reason := 'dependency'; v_found := true;
        detail := format('waits for task %s, which is %s', p.id, p.status);
        advice := 'shiftboss why ' || p.id;
        RETURN NEXT;
    END LOOP;
    IF t.hold IN ('sleep', 'event', 'child') THEN
        RETURN QUERY SELECT * FROM shiftboss.why_suspended(p_id);
        RETURN;
    ELSIF t.hold = 'dependency' AND NOT v_found THEN
        reason := 'dependency'; v_found := true;
        detail := 'held for a dependency, but none is left';
        advice := 'wait until the leader releases it, or run SELECT shiftboss.rescue()';
        RETURN NEXT;
    ELSIF t.hold = 'unusable' THEN
        reason := 'unusable'; v_found := true;
        detail := 'its task_type is empty, so no worker can run it';
        advice := format('set a type: UPDATE tasks SET task_type = ''...'' WHERE id = ''%s''; or delete it', t.id);
        RETURN NEXT;
        RETURN;
    END IF;
    IF coalesce(t.run_at, t.created_at) > v_now THEN
        reason := CASE WHEN t.wait_reason IS NULL THEN 'not due' ELSE t.wait_reason END; v_found := true;
        detail := format('due at %s, in %s', coalesce(t.run_at, t.created_at),
            date_trunc('second', coalesce(t.run_at, t.created_at) - v_now));
        advice := CASE
            WHEN t.wait_reason = 'limit reached'
                THEN (SELECT 'wait, or raise it: ' || shiftboss.raise_limit_command(x, 'rate')
                FROM shiftboss.limits_of(t.queue, t.task_type) x WHERE x.rate_per = 'key' ORDER BY x.kind DESC LIMIT 1)
            ELSE coalesce((SELECT regexp_replace(t.wait_reason, a.pattern, a.advice)
                    -- A raised limit releases its tasks.
                    || CASE WHEN a.advice LIKE 'wait, or raise it%' THEN ''
                        ELSE '; to run the task now: shiftboss tasks run-now ' || t.id END
                FROM shiftboss.advice a WHERE t.wait_reason ~ a.pattern ORDER BY length(a.pattern) DESC LIMIT 1),
                'wait, or run it now: shiftboss tasks run-now ' || t.id) END;
        IF t.wait_reason = 'limit reached' THEN
            detail := format('the rate of the key "%s" is used up; ', t.concurrency_key) || detail;
        END IF;
        RETURN NEXT;
    END IF;
    FOR p IN SELECT * FROM shiftboss.pauses_of(t.queue, t.task_type) LOOP
        reason := 'paused'; v_found := true;
        detail := format('%s %s has been paused since %s%s', replace(p.kind, '_', ' '), p.name,
            to_char(p.paused_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'),
            coalesce(': ' || p.reason, ''));
        advice := format('shiftboss queues resume %s%s', CASE p.kind WHEN 'task_type' THEN '--type ' ELSE '' END,
            p.name);
        RETURN NEXT;
    END LOOP;
    FOR l IN SELECT * FROM shiftboss.limits_of(t.queue, t.task_type) LOOP
        SELECT count(*) INTO v_running FROM public.tasks r WHERE r.status = 'In Progress'
            AND CASE l.kind WHEN 'queue' THEN r.queue ELSE r.task_type END = l.name;
        IF v_running >= l.max_running THEN
            reason := 'limit reached'; v_found := true;
            detail := format('%s of at most %s tasks are running for %s %s', v_running, l.max_running,
                replace(l.kind, '_', ' '), l.name);
            advice := 'wait, or raise it: ' || shiftboss.raise_limit_command(l, 'max_running');
            RETURN NEXT;
        END IF;
        IF l.rate IS NOT NULL AND (CASE l.rate_per WHEN 'all' THEN shiftboss.tokens(l, v_now)
                WHEN 'tenant' THEN shiftboss.tokens_of(l, t.tenant, v_now) END) < 1 THEN
            reason := 'limit reached'; v_found := true;
            detail := format('the rate of %s per %s for %s %s is used up', l.rate, l.rate_period,
                replace(l.kind, '_', ' '), l.name)
                || CASE l.rate_per WHEN 'tenant' THEN format(' by tenant "%s"', t.tenant) ELSE '' END;
            advice := 'wait, or raise it: ' || shiftboss.raise_limit_command(l, 'rate');
            RETURN NEXT;
        END IF;
    END LOOP;
    IF t.hold = 'limit' THEN
        reason := 'limit reached'; v_found := true;
        detail := format('other tasks with the key "%s" are running', t.concurrency_key);
        SELECT 'wait, or raise it: ' || shiftboss.raise_limit_command(x, 'max_per_key') INTO advice
        FROM shiftboss.limits x WHERE x.kind = 'task_type' AND x.name = t.task_type;
        advice := coalesce(advice, 'wait: the limit was removed, and the leader will release the task');
        RETURN NEXT;
    END IF;
    IF NOT shiftboss.has_version(t.requires) THEN
        reason := format('no worker of version %s',
            t.requires #>> ARRAY['version', t.task_type, '0']); v_found := true;
        detail := 'it started on this version, and no active worker has this version or a compatible one';
        advice := format('start such a worker, or run the task from the start: '
            || 'shiftboss tasks cancel %s && shiftboss tasks retry %s --restart', t.id, t.id);
        RETURN NEXT;
    ELSIF NOT EXISTS (SELECT FROM public.workers w WHERE w.status = 'active' AND NOT shiftboss.ending(w)
                   AND shiftboss.capable(w, t.queue, t.task_type, t.requires)) THEN
        reason := 'no capable worker'; v_found := true;
        SELECT format('%s active workers, of which %s serve queue "%s", %s have type "%s"%s', count(*),
            count(*) FILTER (WHERE w.queues IS NULL OR t.queue = ANY (w.queues)), t.queue,
            count(*) FILTER (WHERE NOT w.capabilities ? 'task_types' OR w.capabilities -> 'task_types' ? t.task_type),
                t.task_type,
            CASE WHEN t.requires IS NOT NULL THEN format(', %s meet %s',
                count(*) FILTER (WHERE shiftboss.meets(t.requires, w.capabilities, w.resource_limits)), t.requires)
                    ELSE '' END)
        INTO detail FROM public.workers w WHERE w.status = 'active' AND NOT shiftboss.ending(w);
        advice := coalesce((SELECT format('start a worker that is connected to %1$s: '
                || 'shiftboss worker module:app --engine %1$s', substr(f, 8))
                    FROM jsonb_array_elements_text(t.requires -> 'features') f WHERE f LIKE 'engine:%' LIMIT 1),
            format('start a worker that has a handler for "%s" and serves queue "%s": '
                || 'shiftboss worker module:app', t.task_type, t.queue));
        RETURN NEXT;
    ELSIF NOT EXISTS (SELECT FROM public.workers w WHERE w.status = 'active' AND NOT shiftboss.ending(w)
        AND NOT w.paused
                      AND NOT w.draining AND shiftboss.capable(w, t.queue, t.task_type, t.requires)) THEN
        reason := 'paused'; v_found := true;
        detail := 'every worker that could run it is paused or draining';
        advice := 'shiftboss resume --all';
        RETURN NEXT;
    END IF;
    IF NOT v_found THEN
        SELECT count(*) INTO v_running
            FROM (SELECT FROM public.tasks x
            WHERE shiftboss.lane_of(x.queue, x.task_type, x.priority, x.tenant, x.requires)
            = shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) AND x.status = 'Queued'
            AND x.hold IS NULL AND coalesce(x.run_at, x.created_at) < coalesce(t.run_at, t.created_at)
            -- ordered like a claim, to use the claim's index
            ORDER BY coalesce(x.run_at, x.created_at), x.id LIMIT 10001) x;
        reason := 'busy';
        detail := CASE WHEN v_running = 0 THEN 'no older task of the same kind is ahead of it'
                WHEN v_running = 1 THEN '1 older task of the same kind is ahead of it'
                ELSE format('%s older tasks of the same kind are ahead of it',
                    CASE WHEN v_running > 10000 THEN 'over 10000' ELSE v_running::text END) END
            || coalesce('; ' || (
                SELECT string_agg(format('%s: %s', r.coordinator, r.detail), '; ' ORDER BY r.coordinator)
                FROM shiftboss.lane_reasons r WHERE r.at > v_now - interval '30 seconds'
                AND r.lane = shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires)), '');
        advice := 'wait, add workers (shiftboss scale), or give it a higher priority';
        RETURN NEXT;
    END IF;
END $$;
