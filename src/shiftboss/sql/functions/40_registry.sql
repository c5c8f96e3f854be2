-- The registry of workers. All leases of a worker depend on one row: a heartbeat extends them all, and without
-- heartbeats they all expire.

-- Register an unknown worker at its first claim. register() stores its capabilities.
CREATE OR REPLACE FUNCTION shiftboss.admit(p_worker text) RETURNS public.workers LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    w public.workers;
    v_now timestamptz := shiftboss.now();
BEGIN
    IF coalesce(trim(p_worker), '') = '' THEN
        RAISE EXCEPTION 'a worker id must not be empty' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass a stable name, for example the host name and a number.';
    END IF;
    SELECT * INTO w FROM public.workers WHERE id = p_worker;
    IF NOT FOUND THEN
        INSERT INTO public.workers (id, instance_type, status, last_heartbeat, lease_expires_at, created_at)
        VALUES (p_worker, 'external', 'active', v_now, v_now + interval '5 minutes', v_now)
        ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING * INTO w;
        PERFORM shiftboss.note('worker.joined', p_worker, NULL, NULL, '{"instance_type": "external"}');
    ELSIF w.status = 'inactive' OR w.lease_expires_at IS NULL OR w.lease_expires_at < v_now + w.lease_time * 0.5 THEN
        -- A claim counts as a heartbeat, but the row is updated only if necessary.
        UPDATE public.workers SET lease_expires_at = v_now + lease_time,
            last_heartbeat = coalesce(last_heartbeat, v_now),
            status = CASE status WHEN 'inactive' THEN 'active' ELSE status END,
            metadata = CASE status WHEN 'inactive' THEN metadata || '{"auto_promoted": true}' ELSE metadata END
        WHERE id = p_worker RETURNING * INTO w;
    END IF;
    RETURN w;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.note(p_kind text, p_worker text DEFAULT NULL, p_component text DEFAULT NULL,
    p_task uuid DEFAULT NULL, p_details jsonb DEFAULT '{}') RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id bigint;
BEGIN
    INSERT INTO shiftboss.events (kind, worker_id, component, task_id, details)
    VALUES (p_kind, p_worker, p_component, p_task, coalesce(p_details, '{}')) RETURNING id INTO v_id;
    PERFORM pg_notify('shiftboss_events', v_id::text);
    RETURN v_id;
END $$;

-- Register a worker. A previous process of the same name loses its tasks. p_age is the age of the process: one that
-- started after the current holder of the name registered is its successor; an older process is rejected while the
-- holder is alive.
CREATE OR REPLACE FUNCTION shiftboss.register(p_worker text, p_instance_type text DEFAULT 'process',
    p_queues text[] DEFAULT NULL,
    p_capabilities jsonb DEFAULT '{}', p_resource_limits jsonb DEFAULT '{}', p_region text DEFAULT NULL,
    p_host text DEFAULT NULL, p_pid int DEFAULT NULL, p_version text DEFAULT NULL, p_incarnation uuid DEFAULT NULL,
    p_lease_time interval DEFAULT '30 seconds', p_metadata jsonb DEFAULT '{}', p_age interval DEFAULT '0')
RETURNS public.workers LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    w public.workers;
    v_now timestamptz := shiftboss.now();
BEGIN
    IF coalesce(trim(p_worker), '') = '' THEN
        RAISE EXCEPTION 'a worker id must not be empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_capabilities ? 'task_types' AND jsonb_typeof(p_capabilities -> 'task_types') <> 'array' THEN
        RAISE EXCEPTION 'capabilities.task_types must be an array' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO public.workers (id, instance_type, status, last_heartbeat, metadata, created_at, queues, capabilities,
        resource_limits, region, host, pid, version, incarnation, lease_time, lease_expires_at, registered_at)
    VALUES (p_worker, p_instance_type, 'active', v_now, coalesce(p_metadata, '{}'), v_now, p_queues,
        coalesce(p_capabilities, '{}'), coalesce(p_resource_limits, '{}'), p_region, p_host, p_pid, p_version,
        p_incarnation, p_lease_time, v_now + p_lease_time, clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET
        instance_type = excluded.instance_type, status = 'active', last_heartbeat = v_now,
        metadata = (workers.metadata - 'orchestrator_status') || excluded.metadata, queues = excluded.queues,
        capabilities = excluded.capabilities, resource_limits = excluded.resource_limits, region = excluded.region,
        host = excluded.host, pid = excluded.pid, version = excluded.version, incarnation = excluded.incarnation,
        lease_time = excluded.lease_time, lease_expires_at = excluded.lease_expires_at, draining = false,
            counted_beat = 0,
        registered_at = excluded.registered_at
    WHERE workers.status <> 'active' OR coalesce(workers.lease_expires_at < v_now, true)
        OR coalesce(workers.registered_at < statement_timestamp() - p_age, true)
        OR coalesce(workers.incarnation = p_incarnation, false)
            OR coalesce((workers.host, workers.pid) = (p_host, p_pid), false)
    RETURNING * INTO w;
    IF w.id IS NULL THEN
        RAISE EXCEPTION 'worker % was registered by another process at the same time', p_worker
            USING ERRCODE = 'unique_violation', HINT = 'Give every process a different worker id.';
    END IF;
    PERFORM shiftboss.worker_died(p_worker, 'lost', 'its worker was restarted');
    PERFORM pg_notify('shiftboss_orders', p_worker);  -- makes a previous process that is still alive send a heartbeat
    PERFORM shiftboss.note('worker.joined', p_worker, NULL, NULL,
        jsonb_build_object('instance_type', p_instance_type, 'host', p_host, 'pid', p_pid, 'version', p_version));
    RETURN w;
END $$;

-- Process a heartbeat: extends all leases of the worker, stores its figures, and returns its orders. p_leases are all
-- leases that the worker has. Those that it no longer holds are returned in `lost`. Tasks that it never received,
-- because the answer to its claim was lost, return to the queue without spending an attempt; if another session has
-- locked them, the next heartbeat tries again. With p_incarnation, only the process that registered last under this
-- name is known: otherwise two processes of one name would return each other's tasks.
DROP FUNCTION IF EXISTS shiftboss.beat(text, bigint[], jsonb, jsonb);  -- had one parameter fewer
CREATE OR REPLACE FUNCTION shiftboss.beat(p_worker text, p_leases bigint[] DEFAULT NULL, p_usage jsonb DEFAULT NULL,
    p_stats jsonb DEFAULT NULL, p_incarnation uuid DEFAULT NULL)
RETURNS TABLE (known boolean, status text, paused boolean, draining boolean, cancel bigint[], lost bigint[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    w public.workers;
    v_now timestamptz := shiftboss.now();
    v_held bigint[];
    v_forgotten uuid[];
    v_forgotten_leases bigint[];
BEGIN
    UPDATE public.workers x SET last_heartbeat = v_now, lease_expires_at = v_now + x.lease_time,
        resource_usage = coalesce(p_usage, x.resource_usage),
        status = CASE x.status WHEN 'inactive' THEN 'active' ELSE x.status END
    WHERE x.id = p_worker AND (p_incarnation IS NULL OR x.incarnation = p_incarnation) RETURNING * INTO w;
    IF w.id IS NULL THEN
        RETURN QUERY SELECT false, NULL::text, false, false, '{}'::bigint[], coalesce(p_leases, '{}');
        RETURN;
    END IF;
    IF p_stats IS NOT NULL THEN
        PERFORM shiftboss.count_beat(w, p_stats);
    END IF;
    SELECT array_agg(t.lease), array_agg(t.lease) FILTER (WHERE t.cancel_requested_at IS NOT NULL),
        array_agg(t.id) FILTER (WHERE t.lease <> ALL (p_leases)
            AND t.generation_started_at < v_now - interval '15 seconds'),
        array_agg(t.lease) FILTER (WHERE t.lease <> ALL (p_leases)
            AND t.generation_started_at < v_now - interval '15 seconds')
    INTO v_held, cancel, v_forgotten, v_forgotten_leases
    FROM public.tasks t WHERE t.status = 'In Progress' AND t.worker_id = p_worker;
    IF v_forgotten IS NOT NULL THEN
        PERFORM shiftboss.return_forgotten(v_forgotten, v_forgotten_leases);
    END IF;
    known := true;
    status := w.status;
    paused := w.paused;
    draining := w.draining OR shiftboss.ending(w);
    cancel := coalesce(cancel, '{}');
    lost := ARRAY(SELECT l FROM unnest(p_leases) l WHERE l <> ALL (coalesce(v_held, '{}')));
    RETURN NEXT;
END $$;

-- Return tasks that the worker never received to the queue. Skips locked tasks, because the worker's other leases
-- depend on the heartbeat.
CREATE OR REPLACE FUNCTION shiftboss.return_forgotten(p_ids uuid[], p_leases bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_locked uuid[] := shiftboss.locked(p_ids);
    v_ids uuid[];
    v_leases bigint[];
BEGIN
    SELECT array_agg(u.id), array_agg(u.lease) INTO v_ids, v_leases
    FROM unnest(p_ids, p_leases) u (id, lease) WHERE u.id <> ALL (v_locked);
    IF v_ids IS NOT NULL THEN
        PERFORM shiftboss.defer(v_ids, v_leases, array_fill(interval '0', ARRAY[cardinality(v_ids)]),
            array_fill('the worker never received it'::text, ARRAY[cardinality(v_ids)]));
    END IF;
END $$;

-- Count the statistics of a heartbeat once. Each row has the number of the heartbeat that first contained it,
-- ascending within an incarnation. A heartbeat whose answer was lost is repeated with its number. The caller holds the
-- lock of the worker's row.
CREATE OR REPLACE FUNCTION shiftboss.count_beat(p_worker public.workers, p_stats jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    p_stats := (SELECT jsonb_agg(s) FROM jsonb_array_elements(p_stats) s
        WHERE coalesce((s ->> 'beat')::bigint > p_worker.counted_beat, true));
    IF p_stats IS NOT NULL THEN
        PERFORM shiftboss.count_work(p_worker.id, p_stats);
        UPDATE public.workers SET counted_beat = greatest(counted_beat,
            (SELECT max((s ->> 'beat')::bigint) FROM jsonb_array_elements(p_stats) s)) WHERE id = p_worker.id;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.add_buckets(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(coalesce(x, 0) + coalesce(y, 0) ORDER BY n), '{}')
    FROM unnest(a, b) WITH ORDINALITY u (x, y, n)
$$;

CREATE OR REPLACE AGGREGATE shiftboss.sum_buckets(bigint[]) (
    SFUNC = shiftboss.add_buckets, STYPE = bigint[], INITCOND = '{}', PARALLEL = SAFE);

-- Add the work of a worker to the statistics: [{"queue", "task_type", "completed", "failed", "seconds", "buckets":
-- [..]}].
CREATE OR REPLACE FUNCTION shiftboss.count_work(p_worker text, p_stats jsonb) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT shiftboss.add_stats(array_agg(ROW(date_trunc('minute', shiftboss.now()), p_worker, x.queue, x.task_type,
        coalesce(x.completed, 0), coalesce(x.failed, 0), coalesce(x.seconds, 0),
            coalesce(x.buckets, '{}'))::shiftboss.stats))
    FROM jsonb_to_recordset(p_stats) AS x (queue text, task_type text, completed bigint, failed bigint,
        seconds double precision, buckets bigint[])
$$;

-- Add rows to the statistics and totals. Rows are sorted, so that sessions that update the same rows do not deadlock,
-- and grouped, because after an outage one heartbeat contains the figures of several. Rows that tidy_stats moves
-- (-infinity) are already in the totals.
CREATE OR REPLACE FUNCTION shiftboss.add_stats(p_rows shiftboss.stats[]) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.stats AS s
    SELECT r.minute, r.worker_id, r.queue, r.task_type, sum(r.completed), sum(r.failed), sum(r.seconds),
        shiftboss.sum_buckets(r.buckets)
    FROM unnest(p_rows) r GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (minute, worker_id, queue, task_type) DO UPDATE SET
        completed = s.completed + excluded.completed, failed = s.failed + excluded.failed,
        seconds = s.seconds + excluded.seconds, buckets = shiftboss.add_buckets(s.buckets, excluded.buckets);
    INSERT INTO shiftboss.work_totals AS w
    SELECT r.worker_id, r.task_type, sum(r.completed), sum(r.failed), sum(r.seconds), shiftboss.sum_buckets(r.buckets),
        shiftboss.now()
    FROM unnest(p_rows) r WHERE r.minute > '-infinity' GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (worker_id, task_type) DO UPDATE SET
        completed = w.completed + excluded.completed, failed = w.failed + excluded.failed, at = excluded.at,
        seconds = w.seconds + excluded.seconds, buckets = shiftboss.add_buckets(w.buckets, excluded.buckets);
$$;

-- End all attempts of workers that are gone, as lost or with another outcome such as crashed. Returns the number of
-- tasks.
CREATE OR REPLACE FUNCTION shiftboss.lose_worker(p_workers text[], p_outcome text DEFAULT 'lost',
    p_reason text DEFAULT NULL)
RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_ids uuid[];
    v_leases bigint[];
    v_count int;
BEGIN
    SELECT array_agg(id), array_agg(lease), count(*) INTO v_ids, v_leases, v_count FROM (
        SELECT id, lease FROM public.tasks WHERE status = 'In Progress' AND worker_id = ANY (p_workers)
        ORDER BY id FOR NO KEY UPDATE) t;
    IF v_count > 0 THEN
        PERFORM shiftboss.fail(v_ids, v_leases, array_fill(coalesce(p_reason, 'its worker is gone'), ARRAY[v_count]),
            array_fill(p_outcome, ARRAY[v_count]));
    END IF;
    RETURN v_count;
END $$;

-- Unregister a worker and return its tasks to the queue without spending attempts. With p_incarnation, nothing happens
-- if another process has registered under the name. Locks the worker's row before its tasks, like register().
DROP FUNCTION IF EXISTS shiftboss.leave(text, text);  -- had one parameter fewer
CREATE OR REPLACE FUNCTION shiftboss.leave(p_worker text, p_status text DEFAULT 'inactive',
    p_incarnation uuid DEFAULT NULL)
RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_ids uuid[];
    v_leases bigint[];
    v_count int;
    v_known boolean;
BEGIN
    UPDATE public.workers SET status = CASE status WHEN 'terminated' THEN status ELSE p_status END,
        lease_expires_at = NULL, pid = NULL
    WHERE id = p_worker AND (incarnation = p_incarnation) IS NOT FALSE;
    v_known := FOUND;
    IF NOT v_known AND EXISTS (SELECT FROM public.workers WHERE id = p_worker) THEN
        RETURN 0;
    END IF;
    SELECT array_agg(id), array_agg(lease), count(*) INTO v_ids, v_leases, v_count
    FROM public.tasks WHERE status = 'In Progress' AND worker_id = p_worker;
    IF v_count > 0 THEN
        PERFORM shiftboss.defer(v_ids, v_leases, array_fill(interval '0', ARRAY[v_count]),
            array_fill('its worker stopped'::text, ARRAY[v_count]));
    END IF;
    IF v_known THEN
        PERFORM shiftboss.note('worker.left', p_worker, NULL, NULL, jsonb_build_object('returned_tasks', v_count));
    END IF;
    RETURN v_count;
END $$;

-- The time until which a worker is assumed to be alive. Its heartbeats set lease_expires_at. A client that only
-- updates last_heartbeat is assumed to be alive for lease_time. A worker that left has no lease and is not active.
-- After a restart of the server, every lease gets its full time again, because no heartbeat was possible meanwhile.
CREATE OR REPLACE FUNCTION shiftboss.alive_until(p_worker public.workers, p_now timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE
RETURN CASE WHEN p_worker.lease_expires_at IS NOT NULL OR p_worker.status = 'active' THEN
    greatest(p_worker.lease_expires_at, least(p_worker.last_heartbeat, p_now) + p_worker.lease_time,
        CASE WHEN p_worker.lease_expires_at IS NOT NULL
            THEN pg_catalog.pg_postmaster_start_time() + p_worker.lease_time END) END;
