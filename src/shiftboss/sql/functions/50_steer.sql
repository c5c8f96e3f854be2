-- What people and programs do to tasks from outside: cancel, retry, pause, limit, wait for, prune, and ask why.

-- Queued tasks end at once; a running one is asked to stop, by its worker's next beat or sooner. Whoever steers many tasks
-- may meet a finish crosswise: he gives way, long before the server would pick a victim, and starts over.
CREATE OR REPLACE FUNCTION shiftboss.cancel(p_ids uuid[], p_reason text DEFAULT NULL)
RETURNS TABLE (id uuid, status text, cancelling boolean) LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_parents uuid[];
    v_awaited uuid[];
    v_worker text;
BEGIN
    LOOP
        BEGIN
            -- Before anything is decided: who is running and fails now would be Queued again, and nobody would have asked it
            -- to stop.
            PERFORM shiftboss.lock_down(p_ids);
            WITH ended AS (
                UPDATE public.tasks t SET status = 'Cancelled', hold = NULL, generation_processed_at = v_now, updated_at = v_now,
                    error_message = coalesce(p_reason, t.error_message)
                WHERE t.id = ANY (p_ids) AND t.status = 'Queued' RETURNING t.id, t.has_dependants, t.awaited
            ), edges AS (
                DELETE FROM shiftboss.dependencies d USING ended e WHERE d.child_id = e.id
            )
            SELECT array_agg(e.id) FILTER (WHERE e.has_dependants), array_agg(e.id) FILTER (WHERE e.awaited)
            INTO v_parents, v_awaited FROM ended e;
            PERFORM shiftboss.after_end(v_parents, v_awaited, NULL, NULL);
            FOR v_worker IN
                WITH asked AS (
                    UPDATE public.tasks t SET cancel_requested_at = coalesce(t.cancel_requested_at, v_now),
                        wait_reason = coalesce(p_reason, t.wait_reason)
                    WHERE t.id = ANY (p_ids) AND t.status = 'In Progress' RETURNING t.worker_id)
                SELECT DISTINCT a.worker_id FROM asked a WHERE a.worker_id IS NOT NULL
            LOOP
                PERFORM pg_notify('shiftboss_orders', v_worker);
            END LOOP;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN  -- who holds one of them waits for another: he goes first
            PERFORM pg_sleep(random() * 0.05);
        END;
    END LOOP;
    RETURN QUERY SELECT t.id, t.status, t.cancel_requested_at IS NOT NULL AND t.status = 'In Progress'
        FROM public.tasks t WHERE t.id = ANY (p_ids);
END $$;

-- Dead letters and cancelled tasks start over, with all their attempts; they wait again for parents that are still to
-- end, but no longer for those that failed. Returns the ids that were requeued. Left out are tasks whose dedup_key is live
-- (of several with one key the youngest is taken), and those of a run: what failed there is tried again as a new run
-- (asked for alone, that is said by an error).
CREATE OR REPLACE FUNCTION shiftboss.retry(p_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SET lock_timeout = '100ms' SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    v_ids uuid[];
    v_queues text[];
BEGIN
    LOOP
        BEGIN
            WITH dead AS MATERIALIZED (
                SELECT t.id, t.dedup_key, t.created_at FROM public.tasks t
                WHERE t.id = ANY (p_ids) AND t.status IN ('Failed', 'Cancelled')
                  AND (t.run_id IS NULL OR cardinality(p_ids) = 1) ORDER BY t.id FOR UPDATE
            ), chosen AS (
                SELECT DISTINCT ON (coalesce(d.dedup_key, d.id::text)) d.id FROM dead d
                WHERE d.dedup_key IS NULL OR NOT EXISTS (SELECT FROM public.tasks x
                    WHERE x.dedup_key = d.dedup_key AND x.status IN ('Queued', 'In Progress'))
                ORDER BY coalesce(d.dedup_key, d.id::text), d.created_at DESC
            ), again AS (
                UPDATE public.tasks t SET status = 'Queued', attempts = 0, crashes = 0, worker_id = NULL, lease = NULL,
                    generation_started_at = NULL, generation_processed_at = NULL, cancel_requested_at = NULL, hold = NULL,
                    run_at = NULL, wait_reason = NULL, progress = NULL, progress_message = NULL, updated_at = shiftboss.now(),
                    deadline = CASE WHEN t.deadline > shiftboss.now() THEN t.deadline END
                FROM chosen c WHERE t.id = c.id RETURNING t.id, t.queue
            ) SELECT coalesce(array_agg(id), '{}'), array_agg(DISTINCT queue) INTO v_ids, v_queues FROM again;
            WITH parents AS MATERIALIZED (
                SELECT p.id FROM public.tasks p WHERE p.status COLLATE "C" IN ('Queued', 'In Progress')
                  AND p.id IN (SELECT unnest(t.depends_on) FROM public.tasks t WHERE t.id = ANY (v_ids))
                ORDER BY p.id FOR NO KEY UPDATE
            ), known AS (
                UPDATE public.tasks t SET has_dependants = true FROM parents p WHERE t.id = p.id AND NOT t.has_dependants
            )
            INSERT INTO shiftboss.dependencies (parent_id, child_id)
            SELECT p.id, t.id FROM public.tasks t JOIN parents p ON p.id = ANY (t.depends_on) WHERE t.id = ANY (v_ids)
            ON CONFLICT DO NOTHING;
            UPDATE public.tasks t SET hold = 'dependency' WHERE t.id = ANY (v_ids)
                AND EXISTS (SELECT FROM shiftboss.dependencies d WHERE d.child_id = t.id);
            INSERT INTO shiftboss.lanes (lane, queue, task_type, priority, tenant, requires)
            SELECT DISTINCT ON (n.lane) n.* FROM (
                SELECT shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) AS lane,
                    t.queue, t.task_type, t.priority, t.tenant, t.requires FROM public.tasks t WHERE t.id = ANY (v_ids)) n
            WHERE NOT EXISTS (SELECT FROM shiftboss.lanes l WHERE l.lane = n.lane);
            EXIT;
        EXCEPTION
            WHEN unique_violation THEN  -- a key came to life in between: the next look leaves its task out
            WHEN lock_not_available OR deadlock_detected THEN  -- as in cancel
                PERFORM pg_sleep(random() * 0.05);
        END;
    END LOOP;
    PERFORM shiftboss.wake(v_queues);
    RETURN v_ids;
END $$;

-- Pause or resume a queue or a task type ('queue' | 'task_type'). Returns whether that changed anything.
CREATE OR REPLACE FUNCTION shiftboss.pause(p_kind text, p_name text, p_reason text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shiftboss.pauses (kind, name, reason) VALUES (p_kind, p_name, p_reason) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM shiftboss.note(p_kind || '.paused', NULL, NULL, NULL, jsonb_build_object('name', p_name, 'reason', p_reason));
    END IF;
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.resume(p_kind text, p_name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM shiftboss.pauses WHERE kind = p_kind AND name = p_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM shiftboss.note(p_kind || '.resumed', NULL, NULL, NULL, jsonb_build_object('name', p_name));
    PERFORM pg_notify('shiftboss_tasks', CASE p_kind WHEN 'queue' THEN left(p_name, 1000) ELSE '*' END);
    RETURN true;
END $$;

-- Limits of a queue or task type over the whole fleet; all NULL takes them away.
CREATE OR REPLACE FUNCTION shiftboss.set_limit(p_kind text, p_name text, p_max_running int DEFAULT NULL,
    p_max_per_key int DEFAULT NULL, p_rate int DEFAULT NULL, p_rate_period interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(p_max_running, p_max_per_key, p_rate) IS NULL THEN
        DELETE FROM shiftboss.limits WHERE kind = p_kind AND name = p_name;
    ELSE
        INSERT INTO shiftboss.limits (kind, name, max_running, max_per_key, rate, rate_period)
        VALUES (p_kind, p_name, p_max_running, p_max_per_key, p_rate,
            CASE WHEN p_rate IS NOT NULL THEN coalesce(p_rate_period, '1 minute') END)
        ON CONFLICT (kind, name) DO UPDATE SET max_running = excluded.max_running, max_per_key = excluded.max_per_key,
            rate = excluded.rate, rate_period = excluded.rate_period, tokens = NULL, refilled_at = NULL;
    END IF;
    IF p_kind = 'task_type' THEN
        PERFORM shiftboss.unpark_all(ARRAY[p_name]);
    END IF;
    PERFORM pg_notify('shiftboss_tasks', '*');
END $$;

-- Say that somebody waits for these: their end will be announced on channel shiftboss_results. Returns how each stands.
CREATE OR REPLACE FUNCTION shiftboss.watch(p_ids uuid[])
RETURNS TABLE (id uuid, status text, result_data jsonb, error_message text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_queues text[];
BEGIN
    WITH marked AS (
        UPDATE public.tasks t SET awaited = true
        WHERE t.id = ANY (p_ids) AND t.status IN ('Queued', 'In Progress') AND NOT t.awaited RETURNING t.queue, t.status, t.hold)
    SELECT array_agg(DISTINCT m.queue) INTO v_queues FROM marked m WHERE m.status = 'Queued' AND m.hold IS NULL;
    PERFORM shiftboss.wake(v_queues);  -- a worker that came for one passed over it while its row was being written
    RETURN QUERY SELECT t.id, t.status, t.result_data, t.error_message FROM public.tasks t WHERE t.id = ANY (p_ids);
END $$;

-- Take away finished tasks older than p_older, a small batch at a time; call until it returns 0.
CREATE OR REPLACE FUNCTION shiftboss.prune(p_older interval, p_limit int DEFAULT 1000) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_ids uuid[];
BEGIN
    WITH old AS (
        SELECT id FROM public.tasks
        WHERE status IN ('Complete', 'Failed', 'Cancelled') AND generation_processed_at < shiftboss.now() - p_older
        ORDER BY generation_processed_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), gone AS (DELETE FROM public.tasks t USING old WHERE t.id = old.id RETURNING t.id)
    SELECT array_agg(id) INTO v_ids FROM gone;
    DELETE FROM shiftboss.past_attempts WHERE task_id = ANY (v_ids);
    RETURN coalesce(cardinality(v_ids), 0);
END $$;

-- Housekeeping of the small tables: lanes that are empty or doubled go, lanes that are missing come back, old events and
-- statistics leave. A running task keeps its lane, as it may come back.
CREATE OR REPLACE FUNCTION shiftboss.tidy(p_older interval DEFAULT '7 days') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM shiftboss.lanes l WHERE l.created_at < shiftboss.now() - interval '1 day'
        AND NOT EXISTS (SELECT FROM public.tasks t WHERE t.status = 'Queued' AND t.hold IS NULL
            AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane)
        AND l.lane <> ALL (ARRAY(
            SELECT DISTINCT shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) FROM public.tasks t
            WHERE t.status = 'In Progress' OR (t.status = 'Queued' AND t.hold IS NOT NULL)));
    DELETE FROM shiftboss.lanes l USING shiftboss.lanes k WHERE l.lane = k.lane AND l.ctid > k.ctid;
    PERFORM shiftboss.mend_lanes();
    DELETE FROM shiftboss.events WHERE at < shiftboss.now() - p_older;
    PERFORM shiftboss.tidy_stats(p_older);
END $$;

-- Lanes that have tasks and are not known: whoever put the last one in saw the lane, and it was tidied away before he was
-- done. From lane to lane by the claim's index, whatever their length.
CREATE OR REPLACE FUNCTION shiftboss.mend_lanes() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shiftboss.lanes (lane, queue, task_type, priority, tenant, requires)
    WITH RECURSIVE used AS (
        (SELECT shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) AS lane FROM public.tasks t
         WHERE t.status = 'Queued' AND t.hold IS NULL ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT (SELECT shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) FROM public.tasks t
                WHERE t.status = 'Queued' AND t.hold IS NULL
                  AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) > u.lane
                ORDER BY 1 LIMIT 1) FROM used u WHERE u.lane IS NOT NULL)
    SELECT u.lane, t.queue, t.task_type, t.priority, t.tenant, t.requires
    FROM used u CROSS JOIN LATERAL (SELECT * FROM public.tasks t WHERE t.status = 'Queued' AND t.hold IS NULL
        AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = u.lane LIMIT 1) t
    WHERE NOT EXISTS (SELECT FROM shiftboss.lanes l WHERE l.lane = u.lane);
    IF FOUND THEN
        PERFORM pg_notify('shiftboss_tasks', '*');
    END IF;
END $$;

-- Old minutes become one row per worker and type at -infinity, so that counters never go down while the worker is known.
CREATE OR REPLACE FUNCTION shiftboss.tidy_stats(p_older interval) RETURNS void LANGUAGE sql AS $$
    DELETE FROM shiftboss.stats s WHERE s.minute = '-infinity'
        AND NOT EXISTS (SELECT FROM public.workers w WHERE w.id = s.worker_id);
    WITH old AS (
        DELETE FROM shiftboss.stats WHERE minute > '-infinity' AND minute < shiftboss.now() - p_older RETURNING *)
    SELECT shiftboss.add_stats(array_agg(ROW('-infinity'::timestamptz, x.*)::shiftboss.stats)) FROM (
        SELECT o.worker_id, o.queue, o.task_type, sum(o.completed)::bigint, sum(o.failed)::bigint, sum(o.seconds),
            shiftboss.sum_buckets(o.buckets)
        FROM old o WHERE EXISTS (SELECT FROM public.workers w WHERE w.id = o.worker_id) GROUP BY 1, 2, 3) x
$$;

-- Why does this task wait? One row per reason, with what to do about it; a task that does not wait says how it stands.
CREATE OR REPLACE FUNCTION shiftboss.why(p_id uuid) RETURNS TABLE (reason text, detail text, advice text)
LANGUAGE plpgsql STABLE AS $$
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
            HINT = 'It may have been pruned; shiftboss tasks list shows what there is.';
    END IF;
    IF t.status <> 'Queued' THEN
        reason := lower(t.status);
        detail := CASE t.status
            WHEN 'In Progress' THEN format('running on %s since %s%s', t.worker_id, t.generation_started_at,
                CASE WHEN t.cancel_requested_at IS NOT NULL THEN ', asked to stop' ELSE '' END)
            ELSE format('ended at %s%s', t.generation_processed_at, coalesce(': ' || t.error_message, '')) END;
        advice := CASE t.status WHEN 'Failed' THEN 'shiftboss tasks retry ' || t.id
            WHEN 'Cancelled' THEN 'shiftboss tasks retry ' || t.id ELSE 'nothing to do' END;
        RETURN NEXT;
        RETURN;
    END IF;
    FOR p IN SELECT x.id, x.status FROM shiftboss.dependencies d JOIN public.tasks x ON x.id = d.parent_id
             WHERE d.child_id = p_id LIMIT 10 LOOP
        reason := 'dependency'; v_found := true;
        detail := format('waits for task %s, which is %s', p.id, p.status);
        advice := 'shiftboss why ' || p.id;
        RETURN NEXT;
    END LOOP;
    IF coalesce(t.run_at, t.created_at) > v_now THEN
        reason := CASE WHEN t.wait_reason IS NULL THEN 'not due' ELSE t.wait_reason END; v_found := true;
        detail := format('due at %s, in %s', coalesce(t.run_at, t.created_at),
            date_trunc('second', coalesce(t.run_at, t.created_at) - v_now));
        advice := CASE
            WHEN t.wait_reason LIKE 'provider%' OR t.wait_reason LIKE 'budget%' OR t.wait_reason LIKE 'rate%'
                THEN 'shiftboss providers shows the circuit, the budget and the limits'
            ELSE 'wait, or enqueue it again without a time' END;
        RETURN NEXT;
    END IF;
    FOR p IN SELECT * FROM shiftboss.pauses_of(t.queue, t.task_type) LOOP
        reason := 'paused'; v_found := true;
        detail := format('%s %s is paused since %s%s', replace(p.kind, '_', ' '), p.name, p.paused_at, coalesce(': ' || p.reason, ''));
        advice := format('shiftboss queues resume %s%s', CASE p.kind WHEN 'task_type' THEN '--type ' ELSE '' END, p.name);
        RETURN NEXT;
    END LOOP;
    FOR l IN SELECT * FROM shiftboss.limits_of(t.queue, t.task_type) LOOP
        SELECT count(*) INTO v_running FROM public.tasks r WHERE r.status = 'In Progress'
            AND CASE l.kind WHEN 'queue' THEN r.queue ELSE r.task_type END = l.name;
        IF v_running >= l.max_running THEN
            reason := 'limit reached'; v_found := true;
            detail := format('%s of at most %s are running for %s %s', v_running, l.max_running, replace(l.kind, '_', ' '), l.name);
            advice := format('wait, or raise it: shiftboss queues limit %s', l.name);
            RETURN NEXT;
        END IF;
        IF l.rate IS NOT NULL AND shiftboss.tokens(l, v_now) < 1 THEN
            reason := 'limit reached'; v_found := true;
            detail := format('the rate of %s per %s for %s %s is used up', l.rate, l.rate_period, replace(l.kind, '_', ' '), l.name);
            advice := format('wait, or raise it: shiftboss queues limit %s', l.name);
            RETURN NEXT;
        END IF;
    END LOOP;
    IF t.hold = 'limit' THEN
        reason := 'limit reached'; v_found := true;
        detail := format('others with the key "%s" are running', t.concurrency_key);
        advice := format('wait, or raise max_per_key of %s', t.task_type);
        RETURN NEXT;
    END IF;
    IF NOT EXISTS (SELECT FROM public.workers w WHERE w.status = 'active' AND NOT shiftboss.ending(w)
                   AND shiftboss.capable(w, t.queue, t.task_type, t.requires)) THEN
        reason := 'no capable worker'; v_found := true;
        SELECT format('%s active workers, of which %s serve queue "%s", %s know type "%s"%s', count(*),
            count(*) FILTER (WHERE w.queues IS NULL OR t.queue = ANY (w.queues)), t.queue,
            count(*) FILTER (WHERE NOT w.capabilities ? 'task_types' OR w.capabilities -> 'task_types' ? t.task_type), t.task_type,
            CASE WHEN t.requires IS NOT NULL THEN format(', %s meet %s',
                count(*) FILTER (WHERE shiftboss.meets(t.requires, w.capabilities, w.resource_limits)), t.requires) ELSE '' END)
        INTO detail FROM public.workers w WHERE w.status = 'active' AND NOT shiftboss.ending(w);
        advice := format('start a worker that has a handler for "%s" and serves queue "%s"', t.task_type, t.queue);
        RETURN NEXT;
    ELSIF NOT EXISTS (SELECT FROM public.workers w WHERE w.status = 'active' AND NOT shiftboss.ending(w) AND NOT w.paused
                      AND NOT w.draining AND shiftboss.capable(w, t.queue, t.task_type, t.requires)) THEN
        reason := 'paused'; v_found := true;
        detail := 'every worker that could do it is paused or draining';
        advice := 'shiftboss resume';
        RETURN NEXT;
    END IF;
    IF NOT v_found THEN
        SELECT count(*) INTO v_running FROM (SELECT FROM public.tasks x WHERE shiftboss.lane_of(x.queue, x.task_type, x.priority, x.tenant, x.requires)
            = shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) AND x.status = 'Queued'
            AND x.hold IS NULL AND coalesce(x.run_at, x.created_at) < coalesce(t.run_at, t.created_at)
            ORDER BY coalesce(x.run_at, x.created_at), x.id LIMIT 10001) x;  -- in the claim's order: so by the claim's index
        reason := 'busy';
        detail := format('%s older tasks of its kind are ahead of it', CASE WHEN v_running > 10000 THEN 'over 10000' ELSE v_running::text END)
            || coalesce('; ' || shiftboss.lane_says(shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires)), '');
        advice := 'wait, add workers (shiftboss scale), or give it a higher priority';
        RETURN NEXT;
    END IF;
END $$;
