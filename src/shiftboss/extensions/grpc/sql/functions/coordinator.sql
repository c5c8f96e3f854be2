-- The queue functions for coordinators. They follow the same rules as those for a worker with its own connection, but one call
-- covers many workers, because one coordinator serves hundreds of them.

-- Register a worker through a coordinator. With the secret of its previous session, the worker resumes it and keeps its tasks;
-- otherwise it starts a new one. `taken` means that another worker with this ID is connected, or registered very recently, and
-- that nothing was changed.
CREATE OR REPLACE FUNCTION shiftboss.enroll(p_worker text, p_secret bytea, p_former bytea, p_fresh interval, p_queues text[],
    p_capabilities jsonb, p_resource_limits jsonb, p_region text, p_host text, p_pid int, p_version text,
    p_incarnation uuid, p_lease_time interval, p_metadata jsonb)
RETURNS TABLE (taken boolean, resumed boolean) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    s shiftboss.sessions;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('shiftboss.enroll ' || p_worker, 0));
    SELECT * INTO s FROM shiftboss.sessions WHERE worker_id = p_worker;
    taken := false;
    resumed := false;
    IF s.secret = p_former THEN
        UPDATE public.workers SET status = 'active', last_heartbeat = v_now, lease_expires_at = v_now + p_lease_time,
            lease_time = p_lease_time, queues = p_queues, capabilities = p_capabilities, resource_limits = p_resource_limits,
            region = p_region, host = p_host, pid = p_pid, version = p_version
        WHERE id = p_worker AND status <> 'terminated';
        resumed := FOUND;
    ELSIF s.worker_id IS NOT NULL THEN
        taken := EXISTS (SELECT FROM public.workers w WHERE w.id = p_worker AND w.status = 'active'
            AND w.lease_expires_at >= v_now AND w.last_heartbeat >= v_now - p_fresh
            AND (s.coordinator IS NOT NULL OR (s.attached_at IS NULL AND w.last_heartbeat <= w.registered_at
                AND coalesce(w.incarnation <> p_incarnation OR (w.host, w.pid) <> (p_host, p_pid), true))));
    END IF;
    IF NOT taken AND NOT resumed THEN
        PERFORM shiftboss.register(p_worker, 'grpc', p_queues, p_capabilities, p_resource_limits, p_region, p_host, p_pid,
            p_version, p_incarnation, p_lease_time, p_metadata);
        INSERT INTO shiftboss.sessions AS x (worker_id, secret) VALUES (p_worker, p_secret)
        ON CONFLICT (worker_id) DO UPDATE SET secret = excluded.secret, coordinator = NULL, attached_at = NULL,
            created_at = v_now;
    END IF;
    RETURN NEXT;
END $$;

-- Store the heartbeats of many workers: [{"id", "session", "leases": [..], "given": [..], "usage": {..}}]. The rules are those
-- of shiftboss.beat. `given` are the leases that the coordinator has assigned to the worker; lost ones are returned. `session` is
-- the secret in hexadecimal digits. A worker that is missing from the result is unknown or has been replaced.
CREATE OR REPLACE FUNCTION shiftboss.beats(p_beats jsonb)
RETURNS TABLE (id text, status text, paused boolean, draining boolean, cancel bigint[], lost bigint[]) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_forgotten uuid[];
    v_leases bigint[];
BEGIN
    p_beats := (SELECT coalesce(jsonb_agg(b), '[]') FROM jsonb_array_elements(p_beats) b WHERE NOT EXISTS (
        SELECT FROM shiftboss.sessions s WHERE s.worker_id = b ->> 'id' AND encode(s.secret, 'hex') <> b ->> 'session'));
    PERFORM FROM public.workers w WHERE w.id IN (SELECT b ->> 'id' FROM jsonb_array_elements(p_beats) b) ORDER BY w.id
        FOR NO KEY UPDATE;
    UPDATE public.workers w SET last_heartbeat = v_now, lease_expires_at = v_now + w.lease_time,
        resource_usage = coalesce(b.usage, w.resource_usage),
        status = CASE w.status WHEN 'inactive' THEN 'active' ELSE w.status END
    FROM jsonb_to_recordset(p_beats) b (id text, usage jsonb) WHERE w.id = b.id;
    SELECT array_agg(t.id), array_agg(t.lease) INTO v_forgotten, v_leases
    FROM jsonb_to_recordset(p_beats) b (id text, leases bigint[])
    JOIN public.tasks t ON t.status = 'In Progress' AND t.worker_id = b.id
    WHERE t.lease <> ALL (coalesce(b.leases, '{}')) AND t.generation_started_at < v_now - interval '15 seconds';
    IF v_forgotten IS NOT NULL THEN
        PERFORM shiftboss.return_forgotten(v_forgotten, v_leases);
    END IF;
    RETURN QUERY
        SELECT w.id, w.status, w.paused, w.draining OR shiftboss.ending(w),
            coalesce(h.cancel, '{}'),
            ARRAY(SELECT DISTINCT l FROM unnest(b.leases || b.given) l WHERE l <> ALL (coalesce(h.held, '{}')))
        FROM jsonb_to_recordset(p_beats) b (id text, leases bigint[], given bigint[])
        JOIN public.workers w ON w.id = b.id
        LEFT JOIN LATERAL (
            SELECT array_agg(t.lease) AS held, array_agg(t.lease) FILTER (WHERE t.cancel_requested_at IS NOT NULL) AS cancel
            FROM public.tasks t WHERE t.status = 'In Progress' AND t.worker_id = b.id) h ON true;
END $$;

-- Return the head of every lane that is not paused, one row per lane, as input of the scheduler. Each head has at most p_limit
-- tasks and respects the limits of the lane. The marks are those of shiftboss.claim.
CREATE OR REPLACE FUNCTION shiftboss.waiting(p_limit int, p_mark_lanes bigint[] DEFAULT NULL, p_mark_times timestamptz[] DEFAULT NULL)
RETURNS TABLE (lane bigint, queue text, task_type text, priority smallint, tenant text, weight real, requires jsonb,
    ids uuid[], regions text[], last_ready timestamptz)
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET enable_sort = off SET jit = off AS $$
    SELECT shiftboss.find_lanes();
    SELECT l.lane, l.queue, l.task_type, (l.priority + CASE WHEN a.every IS NULL THEN 0
        ELSE greatest(shiftboss.gained(l.priority, h.first_ready, shiftboss.now(), a.every), 0) END)::smallint, l.tenant, coalesce(n.weight, 1), l.requires, h.ids, h.regions, h.last_ready
    FROM (SELECT DISTINCT ON (x.lane) x.* FROM shiftboss.lanes x
          WHERE NOT EXISTS (SELECT FROM shiftboss.pauses_of(x.queue, x.task_type))) l
    CROSS JOIN (SELECT shiftboss.ageing() AS every) a
    LEFT JOIN shiftboss.tenants n ON n.name = l.tenant
    LEFT JOIN unnest(p_mark_lanes, p_mark_times) m (lane, mark) ON m.lane = l.lane
    CROSS JOIN LATERAL (SELECT CASE WHEN EXISTS (SELECT FROM shiftboss.limits_of(l.queue, l.task_type))
        THEN least(p_limit, shiftboss.headroom(l.queue, l.task_type, shiftboss.now(), l.tenant)) ELSE p_limit END AS room) r
    CROSS JOIN LATERAL (
        SELECT array_agg(t.id) AS ids, array_agg(t.region) AS regions, max(t.ready_at) AS last_ready, min(t.ready_at) AS first_ready
        FROM (SELECT t.id, t.region, coalesce(t.run_at, t.created_at) AS ready_at FROM public.tasks t
              WHERE shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane
                AND t.status = 'Queued' AND t.hold IS NULL
                AND coalesce(t.run_at, t.created_at) >= coalesce(m.mark, '-infinity')
                AND coalesce(t.run_at, t.created_at) <= shiftboss.now()
              ORDER BY coalesce(t.run_at, t.created_at), t.id LIMIT r.room) t) h
    WHERE h.ids IS NOT NULL
$$;

-- Assign each task to its worker if both are still available: shiftboss.assign for many workers in one call. The rows are locked
-- by ID only and then updated by ctid. With more conditions, a plan made from old statistics compared every waiting task with
-- every chosen one.
CREATE OR REPLACE FUNCTION shiftboss.assign_each(p_ids uuid[], p_workers text[])
RETURNS TABLE (worker_id text, task shiftboss.claimed_task)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_limited boolean := EXISTS (SELECT FROM shiftboss.limits);
    v_paused boolean := EXISTS (SELECT FROM shiftboss.pauses);
    v_salt bigint := shiftboss.lease_salt();
    v_worker text;
BEGIN
    RETURN QUERY
        WITH chosen AS MATERIALIZED (
            SELECT t.ctid AS place, x.worker, t.status, t.hold, coalesce(t.run_at, t.created_at) AS ready_at, t.queue,
                t.task_type, t.requires
            FROM unnest(p_ids, p_workers) x (id, worker) JOIN public.tasks t ON t.id = ANY (ARRAY[x.id])
            FOR UPDATE OF t SKIP LOCKED
        ), fit AS MATERIALIZED (
            SELECT c.place, c.worker FROM chosen c JOIN public.workers w ON w.id = c.worker
            WHERE w.status = 'active' AND NOT w.paused AND NOT w.draining AND NOT shiftboss.ending(w)
              AND c.status = 'Queued' AND c.hold IS NULL AND c.ready_at <= v_now
              AND shiftboss.capable(w, c.queue, c.task_type, c.requires)
              AND NOT (v_paused AND EXISTS (SELECT FROM shiftboss.pauses_of(c.queue, c.task_type)))
              AND NOT (v_limited AND EXISTS (SELECT FROM shiftboss.limits_of(c.queue, c.task_type)))
        )
        UPDATE public.tasks t SET
            status = 'In Progress', worker_id = f.worker, last_worker_id = f.worker, lease = shiftboss.lease_of(t.id, v_salt),
            lease_expires_at = NULL, generation_started_at = v_now, generation_processed_at = NULL, wait_reason = NULL,
            progress = NULL, progress_message = NULL, updated_at = v_now
        FROM fit f WHERE t.ctid = f.place
        RETURNING f.worker, shiftboss.as_claimed(t);
    IF v_limited THEN
        PERFORM shiftboss.lock_limits(p_ids);
        FOR v_worker IN SELECT DISTINCT x.worker FROM unnest(p_ids, p_workers) x (id, worker)
                        JOIN public.tasks t ON t.id = ANY (ARRAY[x.id]) AND t.status = 'Queued' LOOP
            RETURN QUERY SELECT v_worker, a FROM shiftboss.assign(ARRAY(SELECT x.id
                FROM unnest(p_ids, p_workers) x (id, worker) WHERE x.worker = v_worker), v_worker) a;
        END LOOP;
    END IF;
END $$;

-- The form of assign_each that coordinators of version 0.1 call. It will be removed in the next version.
CREATE OR REPLACE FUNCTION shiftboss.assign_many(p_ids uuid[], p_workers text[])
RETURNS TABLE (worker_id text, id uuid, lease bigint, task_type text, params text, attempt int, max_attempts smallint,
    queue text, priority smallint, tenant text, timeout interval, deadline timestamptz, created_at timestamptz,
    ready_at timestamptz, started_at timestamptz, run_id uuid, metadata text, crashes smallint)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.worker_id, t.id, t.lease, t.task_type, t.params::text, t.attempt, t.max_attempts, t.queue, t.priority, t.tenant,
        t.timeout, t.deadline, t.created_at, t.ready_at, t.started_at, t.run_id, t.metadata::text, t.crashes
    FROM shiftboss.assign_each(p_ids, p_workers) a CROSS JOIN LATERAL (SELECT (a.task).*) t
$$;

-- Return the tasks that another worker holds with the given lease. Reports about them are refused.
CREATE OR REPLACE FUNCTION shiftboss.foreign_leases(p_worker text, p_ids uuid[], p_leases bigint[]) RETURNS uuid[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(t.id), '{}') FROM unnest(p_ids, p_leases) u (id, lease)
    JOIN public.tasks t ON t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.worker_id IS DISTINCT FROM p_worker
$$;

-- Store the outcomes of attempts of many workers and their statistics in one transaction. Outcomes are completed, failed, timeout,
-- crashed, postponed, cancelled and suspended; p_texts contains the result, error, reason or waits. Returns the IDs of stale
-- reports. A repeated report is not stale and changes nothing. A lease never changes its worker; callers check with
-- shiftboss.foreign_leases that it belongs to the reporter.
CREATE OR REPLACE FUNCTION shiftboss.report(p_workers text[], p_ids uuid[], p_leases bigint[], p_outcomes text[],
    p_texts text[], p_seconds double precision[], p_delays double precision[], p_final boolean[]) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off AS $$
DECLARE
    d record;
BEGIN
    IF 'completed' = ALL (p_outcomes) THEN
        PERFORM shiftboss.complete(p_ids, p_leases, p_texts::jsonb[]);
    ELSE
        -- Lock everything up front in the common order (tasks, dependants, limits) to avoid deadlocks.
        PERFORM shiftboss.lock_down(p_ids);
        PERFORM shiftboss.lock_limits(p_ids);
        FOR d IN
            SELECT CASE WHEN u.outcome IN ('timeout', 'crashed') THEN 'failed' ELSE u.outcome END AS kind, array_agg(u.id) AS ids,
                array_agg(u.lease) AS leases, array_agg(u.outcome) AS outcomes, array_agg(u.text) AS texts,
                array_agg(make_interval(secs => u.delay)) AS delays, array_agg(NOT u.final) AS retry,
                -- zero means that the backoff of the task applies
                array_agg(CASE WHEN u.delay > 0 THEN make_interval(secs => u.delay) END) AS pauses
            FROM unnest(p_ids, p_leases, p_outcomes, p_texts, p_delays, p_final) u (id, lease, outcome, text, delay, final)
            GROUP BY 1
        LOOP
            CASE d.kind
                WHEN 'completed' THEN PERFORM shiftboss.complete(d.ids, d.leases, d.texts::jsonb[]);
                WHEN 'failed' THEN PERFORM shiftboss.fail(d.ids, d.leases, d.texts, d.outcomes, d.retry, d.pauses);
                WHEN 'postponed' THEN PERFORM shiftboss.defer(d.ids, d.leases, d.delays, d.texts);
                WHEN 'cancelled' THEN PERFORM shiftboss.cancelled(d.ids, d.leases);
                WHEN 'suspended' THEN PERFORM shiftboss.suspend(d.ids, d.leases, d.texts::jsonb[]);
            END CASE;
        END LOOP;
    END IF;
    RETURN CASE WHEN shiftboss.count_ended(p_ids, p_leases, p_outcomes, p_seconds) = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.unheard(p_workers, p_ids, p_leases, p_outcomes) END;
END $$;

-- Add the attempts that this transaction ended to the statistics and return their number. Its rows are recognised by xmin, so a
-- repeated report, whose rows were written by an earlier transaction, counts nothing.
CREATE OR REPLACE FUNCTION shiftboss.count_ended(p_ids uuid[], p_leases bigint[], p_outcomes text[], p_seconds double precision[])
RETURNS int LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_me xid := pg_current_xact_id()::xid;
    v_ended int;
    v_rows shiftboss.stats[];
BEGIN
    WITH own AS (
        SELECT t.worker_id AS worker, t.queue, t.task_type, u.outcome, u.seconds
        FROM unnest(p_ids, p_leases, p_outcomes, p_seconds) u (id, lease, outcome, seconds)
        JOIN public.tasks t ON t.id = ANY (ARRAY[u.id])
        WHERE u.outcome = 'completed' AND t.lease = u.lease AND t.xmin = v_me
        UNION ALL
        SELECT a.worker_id, t.queue, t.task_type, u.outcome, u.seconds
        FROM unnest(p_ids, p_leases, p_outcomes, p_seconds) u (id, lease, outcome, seconds)
        JOIN shiftboss.past_attempts a ON a.task_id = ANY (ARRAY[u.id]) JOIN public.tasks t ON t.id = ANY (ARRAY[u.id])
        WHERE u.outcome <> 'completed' AND a.lease = u.lease AND a.xmin = v_me
    ), binned AS (
        SELECT worker, queue, task_type, outcome = 'completed' AS good, count(*) AS n, sum(seconds) AS seconds,
            shiftboss.time_bucket(seconds) AS bucket
        FROM own WHERE outcome IN ('completed', 'failed', 'timeout', 'crashed') GROUP BY 1, 2, 3, 4, 7
    ), counted (minute, worker_id, queue, task_type, completed, failed, seconds, buckets) AS (
        SELECT date_trunc('minute', shiftboss.now()), worker, queue, task_type, coalesce(sum(n) FILTER (WHERE good), 0)::bigint,
            coalesce(sum(n) FILTER (WHERE NOT good), 0)::bigint, sum(seconds),
            ARRAY(SELECT coalesce(sum(b.n), 0)::bigint FROM generate_series(0, 14) g
                  LEFT JOIN unnest(array_agg(bucket), array_agg(n)) b (bucket, n) ON b.bucket = g GROUP BY g ORDER BY g)
        FROM binned GROUP BY worker, queue, task_type
    )
    SELECT (SELECT count(*) FROM own), (SELECT array_agg(ROW(c.*)::shiftboss.stats) FROM counted c) INTO v_ended, v_rows;
    PERFORM shiftboss.add_stats(v_rows);
    RETURN v_ended;
END $$;

-- Return the attempts that did not end with this outcome reported by their own worker.
CREATE OR REPLACE FUNCTION shiftboss.unheard(p_workers text[], p_ids uuid[], p_leases bigint[], p_outcomes text[]) RETURNS uuid[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(u.id), '{}') FROM unnest(p_workers, p_ids, p_leases, p_outcomes) u (worker, id, lease, outcome)
    WHERE NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease AND t.worker_id = u.worker
            AND t.status = 'Complete' AND u.outcome = 'completed')
      AND NOT EXISTS (SELECT FROM shiftboss.past_attempts a WHERE a.task_id = ANY (ARRAY[u.id]) AND a.lease = u.lease
            AND a.worker_id = u.worker AND CASE u.outcome WHEN 'postponed' THEN a.outcome IN ('deferred', 'released')
                ELSE a.outcome = u.outcome END)
$$;

-- Store that a coordinator is alive, its statistics, and why its scheduler cannot serve some lanes.
CREATE OR REPLACE FUNCTION shiftboss.announce_coordinator(p_name text, p_pid int, p_workers int, p_figures jsonb,
    p_lanes bigint[], p_reasons text[], p_details text[]) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.coordinators AS c (name, pid, workers, figures) VALUES (p_name, p_pid, p_workers, p_figures)
    ON CONFLICT (name) DO UPDATE SET pid = p_pid, workers = p_workers, figures = p_figures, seen_at = shiftboss.now(),
        started_at = CASE WHEN c.pid = p_pid THEN c.started_at ELSE shiftboss.now() END;
    DELETE FROM shiftboss.coordinators WHERE seen_at < shiftboss.now() - interval '1 day';
    DELETE FROM shiftboss.lane_reasons WHERE (coordinator = p_name AND lane <> ALL (p_lanes)) OR at < shiftboss.now() - interval '1 hour';
    INSERT INTO shiftboss.lane_reasons AS r (lane, coordinator, reason, detail)
    SELECT u.lane, p_name, u.reason, u.detail FROM unnest(p_lanes, p_reasons, p_details) u (lane, reason, detail)
    ON CONFLICT (lane, coordinator) DO UPDATE SET reason = excluded.reason, detail = excluded.detail, at = shiftboss.now();
$$;

CREATE OR REPLACE FUNCTION shiftboss.withdraw_coordinator(p_name text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM shiftboss.coordinators WHERE name = p_name;
    DELETE FROM shiftboss.lane_reasons WHERE coordinator = p_name;
$$;
