-- Durable steps. The result of a step is stored under the lease of its task; a later attempt reads it instead of
-- running the step again. A task that waits for a time, an event or a child task does not occupy a worker: it is
-- Queued with a hold, outside the claim's index, and its waits are rows of shiftboss.steps in state `waiting`.

DROP FUNCTION IF EXISTS shiftboss.store_steps(uuid[], bigint[], text[], int[], double precision[], jsonb[]);

-- What a new attempt needs: the steps so far, the seconds that the attempt ran before it was suspended, and the
-- maximum size of a result. One row per task.
CREATE OR REPLACE FUNCTION shiftboss.load_steps(p_ids uuid[])
RETURNS TABLE (id uuid, steps json, ran double precision, most int, version text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
    SELECT t.id,
        (SELECT json_agg(json_build_array(s.kind, s.name, s.ordinal, s.state, s.result, s.child_id)
            ORDER BY s.started_at)
         FROM shiftboss.steps s WHERE s.task_id = t.id AND s.ordinal > 0),
        (SELECT coalesce(sum(extract(epoch FROM a.ended_at - a.started_at)), 0)::double precision
         FROM shiftboss.past_attempts a
         WHERE a.task_id = t.id AND a.outcome = 'suspended' AND a.attempt = t.attempts + 1
           -- excludes time before a retry
           AND a.ended_at >= (SELECT min(s.started_at) FROM shiftboss.steps s WHERE s.task_id = t.id)),
        shiftboss.payload_limit(), t.requires #>> ARRAY['version', t.task_type, '0']
    FROM public.tasks t WHERE t.id = ANY (p_ids)
$$;

-- Pin tasks that start to store steps to the version of their worker, in `requires`. A pinned task keeps its version.
-- Returns the ids whose lease was stale.
CREATE OR REPLACE FUNCTION shiftboss.pin_version(p_ids uuid[], p_leases bigint[], p_versions text[]) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
BEGIN
    UPDATE public.tasks t SET updated_at = shiftboss.now(), requires = coalesce(t.requires, '{}')
        || jsonb_build_object('version', jsonb_build_object(t.task_type, jsonb_build_array(u.version)))
    FROM (SELECT * FROM unnest(p_ids, p_leases, p_versions) u (id, lease, version) ORDER BY id) u
    WHERE t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress'
        AND t.requires -> 'version' IS NULL;
    RETURN shiftboss.stale(p_ids, p_leases, 'In Progress', NULL);
END $$;

-- Whether an active worker has the version that p_requires names, if it names one.
CREATE OR REPLACE FUNCTION shiftboss.has_version(p_requires jsonb) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT p_requires -> 'version' IS NULL OR EXISTS (SELECT FROM public.workers w WHERE w.status = 'active'
        AND NOT shiftboss.ending(w) AND w.capabilities -> 'versions' @> (p_requires -> 'version'))
$$;

-- Store the results of steps of many tasks. Row locks serialise this with everything that ends an attempt: nothing is
-- stored under an expired lease. Returns the ids whose lease was stale. Repeating a call is harmless. p_also contains
-- data that extensions write in the same transaction, such as the cost of a call: see also_with_steps.
CREATE OR REPLACE FUNCTION shiftboss.store_steps(p_ids uuid[], p_leases bigint[], p_names text[], p_ordinals int[],
    p_seconds double precision[], p_results jsonb[], p_also jsonb[] DEFAULT NULL) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_done int;
BEGIN
    WITH held AS MATERIALIZED (
        SELECT u.*, t.attempts + 1 AS attempt
        FROM (SELECT * FROM unnest(p_ids, p_leases, p_names, p_ordinals, p_seconds, p_results)
                  u (id, lease, name, ordinal, seconds, result) ORDER BY id) u
        JOIN public.tasks t ON t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress'
        FOR NO KEY UPDATE OF t
    ), stored AS (
        INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, result, attempt, lease, started_at, ended_at)
        SELECT h.id, 'step', h.name, h.ordinal, 'done', h.result, h.attempt, h.lease,
            v_now - make_interval(secs => h.seconds), v_now FROM held h
        ON CONFLICT DO NOTHING
    )
    SELECT count(*) INTO v_done FROM held;
    IF p_also IS NOT NULL THEN
        PERFORM shiftboss.also_with_steps(p_also);
    END IF;
    RETURN CASE WHEN v_done = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.stale(p_ids, p_leases, 'In Progress', NULL) END;
END $$;

-- Write the data of extensions that comes with steps: {"calls": [...]} is passed to
-- shiftboss.with_step_calls(jsonb) of the extension. This happens even if the lease is stale, because the cost was
-- incurred.
CREATE OR REPLACE FUNCTION shiftboss.also_with_steps(p_also jsonb[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v record;
BEGIN
    FOR v IN SELECT k.key, jsonb_agg(e.value) AS given FROM unnest(p_also) a, jsonb_each(a) k,
        jsonb_array_elements(k.value) e
             GROUP BY k.key ORDER BY k.key LOOP
        IF to_regprocedure(format('shiftboss.%I(jsonb)', 'with_step_' || v.key)) IS NULL THEN
            RAISE EXCEPTION 'no extension stores "%" with a step', v.key USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Install the extension, then run `shiftboss db migrate`.';
        END IF;
        EXECUTE format('SELECT shiftboss.%I($1)', 'with_step_' || v.key) USING v.given;
    END LOOP;
END $$;

-- Suspend tasks that have to wait, without spending an attempt. p_waits is a JSON array for each task, of objects with
-- kind (sleep, event, child), name, ordinal and, depending on the kind, seconds (the maximum wait), key (of the
-- event), question and schema (of an event that is a person's answer), and task (the child, as for shiftboss.enqueue).
-- The task continues when all waits have ended. An existing wait keeps its time, question and child. Returns the ids
-- whose lease was stale.
CREATE OR REPLACE FUNCTION shiftboss.suspend(p_ids uuid[], p_leases bigint[], p_waits jsonb[]) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v record;
BEGIN
    WITH report AS (
        SELECT t.id, t.lease, t.attempts + 1 AS attempt, t.worker_id, t.generation_started_at, u.waits,
            CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'Cancelled' ELSE 'Queued' END AS next
        FROM unnest(p_ids, p_leases, p_waits) u (id, lease, waits)
        JOIN public.tasks t ON t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.status COLLATE "C" = 'In Progress'
        ORDER BY u.id FOR NO KEY UPDATE OF t
    ), past AS (
        INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome)
        SELECT id, lease, attempt, worker_id, generation_started_at, v_now, 'suspended' FROM report
    ), waits AS (
        INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, attempt, lease, started_at, until, event_key,
            question, schema)
        SELECT r.id, w ->> 'kind', w ->> 'name', (w ->> 'ordinal')::int, 'waiting', r.attempt, r.lease, v_now,
            v_now + make_interval(secs => (w ->> 'seconds')::double precision), w ->> 'key', w ->> 'question',
                w -> 'schema'
        FROM report r, jsonb_array_elements(r.waits) w WHERE r.next = 'Queued'
        ON CONFLICT DO NOTHING
    ), ended AS (
        UPDATE public.tasks t SET
            status = r.next, hold = CASE WHEN r.next = 'Queued' THEN r.waits -> 0 ->> 'kind' END,
            worker_id = CASE WHEN r.next = 'Queued' THEN NULL ELSE t.worker_id END, lease = NULL,
                lease_expires_at = NULL,
            generation_started_at = CASE WHEN r.next = 'Queued' THEN NULL ELSE t.generation_started_at END,
            generation_processed_at = CASE WHEN r.next = 'Queued' THEN NULL ELSE v_now END,
            wait_reason = NULL, updated_at = v_now
        FROM report r WHERE t.id = ANY (ARRAY[r.id])
        RETURNING t.id, t.status, t.has_dependants, t.awaited, t.task_type, t.concurrency_key
    )
    SELECT count(*) AS done, array_agg(id) FILTER (WHERE status = 'Queued') AS held,
        array_agg(id) FILTER (WHERE has_dependants AND status = 'Cancelled') AS parents,
        array_agg(id) FILTER (WHERE awaited AND status = 'Cancelled') AS awaited,
        array_agg(task_type) FILTER (WHERE concurrency_key IS NOT NULL) AS types,
        array_agg(concurrency_key) FILTER (WHERE concurrency_key IS NOT NULL) AS keys
    INTO v FROM ended;
    PERFORM shiftboss.start_children(v.held, p_ids, p_waits);
    PERFORM shiftboss.match_events(v.held);
    PERFORM shiftboss.go_on(v.held);
    PERFORM shiftboss.after_end(v.parents, v.awaited, v.types, v.keys);
    RETURN CASE WHEN v.done = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.stale(p_ids, p_leases, NULL, '{suspended}') END;
END $$;

-- Enqueue the children that these tasks start to wait for, unless the wait already has a child.
CREATE OR REPLACE FUNCTION shiftboss.start_children(p_held uuid[], p_ids uuid[], p_waits jsonb[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    w record;
    v_child uuid;
    v_made boolean;
BEGIN
    FOR w IN
        SELECT s.task_id, s.name, s.ordinal, x -> 'task' AS task
        FROM unnest(p_ids, p_waits) u (id, waits), jsonb_array_elements(u.waits) x, shiftboss.steps s
        WHERE u.id = ANY (p_held) AND x ->> 'kind' = 'child' AND s.task_id = ANY (ARRAY[u.id]) AND s.kind = 'child'
          AND s.name = x ->> 'name' AND s.ordinal = (x ->> 'ordinal')::int AND s.child_id IS NULL
    LOOP
        SELECT e.id, e.created INTO v_child, v_made FROM shiftboss.enqueue(jsonb_build_array(w.task)) e;
        -- An existing task with the same dedup_key may have ended by now; then the wait ends below.
        UPDATE public.tasks t SET has_dependants = true, updated_at = shiftboss.now()
        WHERE t.id = v_child AND t.status COLLATE "C" IN ('Queued', 'In Progress');
        UPDATE shiftboss.steps s SET child_id = v_child, child_made = v_made
        WHERE s.task_id = w.task_id AND s.kind = 'child' AND s.name = w.name AND s.ordinal = w.ordinal;
        IF NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = v_child AND t.status IN ('Queued', 'In Progress')) THEN
            PERFORM shiftboss.end_waits(ARRAY[v_child]);
        END IF;
    END LOOP;
END $$;

-- These tasks and, recursively, the children that they created and wait for, except those that other tasks wait for
-- too.
CREATE OR REPLACE FUNCTION shiftboss.with_children(p_ids uuid[]) RETURNS uuid[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
    WITH RECURSIVE below (id) AS (
        SELECT unnest(p_ids)
        UNION
        -- LATERAL and OFFSET: with the statistics of an emptied table, a join would start with all tasks or all steps.
        SELECT s.child_id FROM below b
        CROSS JOIN LATERAL (SELECT FROM public.tasks t WHERE t.id = b.id AND t.status COLLATE "C" = 'Queued'
            AND t.hold COLLATE "C" = 'child' OFFSET 0) t
        CROSS JOIN LATERAL (SELECT c.child_id FROM shiftboss.steps c WHERE c.task_id = b.id AND c.kind = 'child'
            AND c.state COLLATE "C" = 'waiting' AND c.child_made OFFSET 0) s
        WHERE (SELECT true FROM shiftboss.steps o CROSS JOIN LATERAL (SELECT FROM public.tasks w
                WHERE w.id = o.task_id AND w.status COLLATE "C" = 'Queued' OFFSET 0) w
            WHERE o.child_id = s.child_id AND o.state = 'waiting' AND o.task_id <> b.id LIMIT 1) IS NULL)
    SELECT array_agg(id) FROM below
$$;

-- Continue suspended tasks that have no waits left. The caller has locked the tasks before it read their waits: if two
-- sessions end the last two waits of a task, the second one sees the change of the first. All tasks are updated, for
-- callers at REPEATABLE READ. A task that continues comes first in its lane, because it has already started; its
-- run_at says so without making it look older than it is. It was counted against its rate when it started, so the
-- bucket gets a token back for the next claim.
CREATE OR REPLACE FUNCTION shiftboss.go_on(p_ids uuid[]) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_queues text[];
    v_types text[];
BEGIN
    IF p_ids IS NULL THEN
        RETURN 0;
    END IF;
    WITH looked AS (
        SELECT t.id, shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) AS lane,
            (SELECT true FROM shiftboss.steps s WHERE s.task_id = t.id AND s.state COLLATE "C" = 'waiting' LIMIT 1)
                IS NOT NULL AS waits  -- EXISTS could become a hash of all waits
        FROM public.tasks t WHERE t.id = ANY (p_ids)
    ), heads AS MATERIALIZED (
        SELECT l.lane, (SELECT coalesce(t.run_at, t.created_at) FROM public.tasks t
            WHERE shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane
              AND t.status = 'Queued' AND t.hold IS NULL
            ORDER BY coalesce(t.run_at, t.created_at), t.id LIMIT 1) AS ready_at
        FROM (SELECT DISTINCT lane FROM looked WHERE NOT waits) l
    ), written AS (
        UPDATE public.tasks t SET hold = CASE WHEN l.waits THEN t.hold END, updated_at = v_now,
            run_at = CASE WHEN l.waits THEN t.run_at ELSE least(v_now, h.ready_at - interval '1 microsecond') END
        FROM looked l LEFT JOIN heads h USING (lane) WHERE t.id = ANY (ARRAY[l.id])
            AND t.status COLLATE "C" = 'Queued' AND t.hold IN ('sleep', 'event', 'child')
        RETURNING t.queue, t.task_type, t.hold)
    SELECT array_agg(queue), array_agg(task_type) INTO v_queues, v_types FROM written WHERE hold IS NULL;
    IF v_queues IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM FROM shiftboss.limits l WHERE l.rate IS NOT NULL AND ((l.kind = 'queue' AND l.name = ANY (v_queues))
        OR (l.kind = 'task_type' AND l.name = ANY (v_types))) ORDER BY l.kind, l.name FOR UPDATE;
    UPDATE shiftboss.limits l SET refilled_at = greatest(l.refilled_at, v_now), tokens = shiftboss.tokens(l, v_now)
        + (SELECT count(*) FROM unnest(v_queues, v_types) u (queue, type)
           WHERE CASE l.kind WHEN 'queue' THEN u.queue ELSE u.type END = l.name)
    WHERE l.rate IS NOT NULL AND ((l.kind = 'queue' AND l.name = ANY (v_queues))
        OR (l.kind = 'task_type' AND l.name = ANY (v_types)));
    PERFORM shiftboss.wake(ARRAY(SELECT DISTINCT unnest(v_queues)));
    RETURN cardinality(v_queues);
END $$;

-- End the waits for children that have ended or were deleted.
CREATE OR REPLACE FUNCTION shiftboss.end_waits(p_children uuid[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_ids uuid[] := ARRAY(SELECT DISTINCT s.task_id FROM shiftboss.steps s
                          WHERE s.child_id = ANY (p_children) AND s.state = 'waiting');
BEGIN
    IF v_ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM shiftboss.lock_tasks(v_ids);
    UPDATE shiftboss.steps s SET ended_at = v_now,
        state = CASE c.status WHEN 'Complete' THEN 'done' WHEN 'Failed' THEN 'failed' ELSE 'cancelled' END,
        result = CASE WHEN c.status = 'Complete' THEN c.result_data
                      ELSE to_jsonb(coalesce(c.error_message, CASE WHEN c.id IS NULL THEN 'it was deleted' END)) END
    FROM unnest(p_children) u (id) LEFT JOIN public.tasks c ON c.id = ANY (ARRAY[u.id])
    WHERE s.child_id = u.id AND s.state = 'waiting';
    PERFORM shiftboss.go_on(v_ids);
END $$;

-- End waits that are due, and deliver events that their sender could not. The leader calls this several times a
-- second. Skips tasks that another session has locked. Returns how many tasks continue.
CREATE OR REPLACE FUNCTION shiftboss.wake_due(p_limit int DEFAULT 1000) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_due uuid[];
    v_free uuid[];
    v_woken int;
BEGIN
    v_due := ARRAY(SELECT s.task_id FROM shiftboss.steps s WHERE s.state = 'waiting' AND s.until <= v_now
                   ORDER BY s.until LIMIT p_limit);
    v_free := ARRAY(SELECT t.id FROM public.tasks t WHERE t.id = ANY (v_due) FOR NO KEY UPDATE SKIP LOCKED);
    UPDATE shiftboss.steps s SET ended_at = v_now, state = CASE s.kind WHEN 'sleep' THEN 'done' ELSE 'timeout' END
    WHERE s.task_id = ANY (v_due) AND s.state = 'waiting' AND s.until <= v_now
      AND (s.task_id = ANY (v_free) OR NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = s.task_id));
    v_woken := shiftboss.go_on(v_free);
    RETURN v_woken + shiftboss.sweep_events(p_limit);
END $$;

-- Quote a word for a shell.
CREATE OR REPLACE FUNCTION shiftboss.shell_word(p_text text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_text ~ '^[[:alnum:]_.:/@][[:alnum:]_.:/@-]*$' THEN p_text ELSE '''' || replace(p_text, '''', '''\''''')
        || '''' END
$$;

-- The waits of a suspended task, for `why`.
CREATE OR REPLACE FUNCTION shiftboss.why_suspended(p_id uuid) RETURNS TABLE (reason text, detail text, advice text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN s.question IS NOT NULL THEN 'waits for an answer' WHEN s.kind = 'sleep' THEN 'sleeping'
            WHEN s.kind = 'event' THEN 'waits for an event' ELSE 'waits for a task' END,
        CASE WHEN s.question IS NOT NULL THEN s.question || coalesce(', until ' || s.until, ', without a time limit')
            WHEN s.kind = 'sleep' THEN format('%s: until %s', s.name, s.until)
            WHEN s.kind = 'event'
                THEN format('event "%s"%s', s.event_key, coalesce(', until ' || s.until, ', without a time limit'))
            ELSE format('task %s, which is %s%s', s.child_id,
                coalesce((SELECT c.status FROM public.tasks c WHERE c.id = s.child_id), 'gone'),
                    coalesce(', until ' || s.until, '')) END,
        CASE WHEN s.question IS NOT NULL THEN format('shiftboss approvals answer %s --step %s', p_id,
                shiftboss.shell_word(s.name || CASE WHEN s.ordinal > 1 THEN '#' || s.ordinal ELSE '' END))
            WHEN s.kind = 'sleep' THEN 'wait, or cancel it: shiftboss tasks cancel ' || p_id
            WHEN s.kind = 'event' THEN format('shiftboss events send %s --task %s', shiftboss.shell_word(s.event_key),
                p_id)
            ELSE 'shiftboss why ' || s.child_id END
    FROM shiftboss.steps s WHERE s.task_id = p_id AND s.state = 'waiting' ORDER BY s.started_at, s.name, s.ordinal
        LIMIT 10
$$;

-- Delete steps of tasks that are retried: those without a result, such as waits that timed out and children that
-- failed; with p_from (a name, or name#ordinal) that step and all later ones; with p_restart all. The task does not
-- receive the events of these waits again: retrying from a wait asks for a new answer. Their rows are kept with a
-- negative ordinal.
DROP FUNCTION IF EXISTS shiftboss.forget_steps(uuid[], text);  -- had one parameter fewer
CREATE OR REPLACE FUNCTION shiftboss.forget_steps(p_ids uuid[], p_from text, p_restart boolean) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_missing uuid;
BEGIN
    IF p_from IS NULL THEN
        DELETE FROM shiftboss.steps WHERE task_id = ANY (p_ids) AND (p_restart OR state <> 'done');
        UPDATE public.tasks SET requires = nullif(requires - 'version', '{}'), updated_at = shiftboss.now()
        WHERE id = ANY (p_ids) AND requires ? 'version';
        RETURN;
    END IF;
    SELECT i INTO v_missing FROM unnest(p_ids) i WHERE NOT EXISTS (
        SELECT FROM shiftboss.steps s WHERE s.task_id = i AND s.ordinal > 0
            AND p_from IN (s.name, s.name || '#' || s.ordinal)) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'task % has no step "%"', v_missing, p_from USING ERRCODE = 'no_data_found',
            HINT = format('`shiftboss tasks steps %s` lists its steps; without --from the task continues after them.',
                v_missing);
    END IF;
    WITH late AS MATERIALIZED (
        SELECT s.task_id, s.kind, s.name, s.ordinal, s.event_id,
            (SELECT least(min(o.ordinal), 0) FROM shiftboss.steps o WHERE o.task_id = s.task_id AND o.kind = s.kind
                AND o.name = s.name) - row_number() OVER (PARTITION BY s.task_id, s.kind, s.name
                    ORDER BY s.ordinal) AS below
        FROM shiftboss.steps s JOIN (
            SELECT f.task_id, min(f.started_at) AS started_at FROM shiftboss.steps f
            WHERE f.task_id = ANY (p_ids) AND f.ordinal > 0 AND p_from IN (f.name, f.name || '#' || f.ordinal)
            GROUP BY f.task_id) f ON s.task_id = f.task_id AND s.started_at >= f.started_at
        WHERE s.ordinal > 0
    ), kept AS (
        UPDATE shiftboss.steps s SET ordinal = l.below FROM late l WHERE l.event_id IS NOT NULL
            AND s.task_id = l.task_id AND s.kind = l.kind AND s.name = l.name AND s.ordinal = l.ordinal
    )
    DELETE FROM shiftboss.steps s USING late l WHERE l.event_id IS NULL
        AND s.task_id = l.task_id AND s.kind = l.kind AND s.name = l.name AND s.ordinal = l.ordinal;
END $$;
