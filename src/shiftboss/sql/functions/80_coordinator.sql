-- The coordinator's side of the queue: the same rules as for a worker with a connection of its own, but for many workers
-- in one call, since one process speaks for hundreds of them.

-- A worker joins through a coordinator. With the secret of its session it goes on, and keeps what it holds; without, it
-- is a new start. `taken`: another worker of this id is connected and beating, nothing was changed.
CREATE OR REPLACE FUNCTION shiftboss.enroll(p_worker text, p_secret bytea, p_former bytea, p_fresh interval, p_queues text[],
    p_capabilities jsonb, p_resource_limits jsonb, p_region text, p_host text, p_pid int, p_version text,
    p_incarnation uuid, p_lease_time interval, p_metadata jsonb)
RETURNS TABLE (taken boolean, resumed boolean) LANGUAGE plpgsql AS $$
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
    ELSIF s.coordinator IS NOT NULL THEN
        taken := EXISTS (SELECT FROM public.workers w WHERE w.id = p_worker AND w.status = 'active'
            AND w.lease_expires_at >= v_now AND w.last_heartbeat >= v_now - p_fresh);
    END IF;
    IF NOT taken AND NOT resumed THEN
        PERFORM shiftboss.register(p_worker, 'grpc', p_queues, p_capabilities, p_resource_limits, p_region, p_host, p_pid,
            p_version, p_incarnation, p_lease_time, p_metadata);
        INSERT INTO shiftboss.sessions AS x (worker_id, secret) VALUES (p_worker, p_secret)
        ON CONFLICT (worker_id) DO UPDATE SET secret = excluded.secret, coordinator = NULL, created_at = v_now;
    END IF;
    RETURN NEXT;
END $$;

-- Anybody may write into the registry; what nobody could read would hide all the others.
CREATE OR REPLACE FUNCTION shiftboss.refuse_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'worker "%": capabilities, resource_limits and resource_usage must be JSON objects, last_heartbeat a moment',
        NEW.id USING ERRCODE = 'invalid_parameter_value';
END $$;

CREATE OR REPLACE TRIGGER refuse_worker AFTER INSERT OR UPDATE ON public.workers FOR EACH ROW
    WHEN (jsonb_typeof(NEW.capabilities) <> 'object' OR jsonb_typeof(NEW.resource_limits) <> 'object'
        OR jsonb_typeof(NEW.resource_usage) <> 'object' OR NOT isfinite(NEW.last_heartbeat))
    EXECUTE FUNCTION shiftboss.refuse_worker();

-- Beats of many workers: [{"id", "session", "leases": [..], "usage": {..}}]. The rules are those of shiftboss.beat. A worker
-- that is not in the answer is unknown, or another one by now: `session` is its secret, in hexadecimal digits.
CREATE OR REPLACE FUNCTION shiftboss.beats(p_beats jsonb)
RETURNS TABLE (id text, status text, paused boolean, draining boolean, cancel bigint[], lost bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_forgotten uuid[];
    v_leases bigint[];
BEGIN
    p_beats := (SELECT coalesce(jsonb_agg(b), '[]') FROM jsonb_array_elements(p_beats) b WHERE NOT EXISTS (
        SELECT FROM shiftboss.sessions s WHERE s.worker_id = b ->> 'id' AND encode(s.secret, 'hex') <> b ->> 'session'));
    UPDATE public.workers w SET last_heartbeat = v_now, lease_expires_at = v_now + w.lease_time,
        resource_usage = coalesce(b.usage, w.resource_usage),
        status = CASE w.status WHEN 'inactive' THEN 'active' ELSE w.status END
    FROM jsonb_to_recordset(p_beats) b (id text, usage jsonb) WHERE w.id = b.id;
    SELECT array_agg(t.id), array_agg(t.lease) INTO v_forgotten, v_leases
    FROM jsonb_to_recordset(p_beats) b (id text, leases bigint[])
    JOIN public.tasks t ON t.status = 'In Progress' AND t.worker_id = b.id
    WHERE t.lease <> ALL (coalesce(b.leases, '{}')) AND t.generation_started_at < v_now - interval '15 seconds';
    IF v_forgotten IS NOT NULL THEN
        PERFORM shiftboss.defer(v_forgotten, v_leases, array_fill(interval '0', ARRAY[cardinality(v_leases)]),
            array_fill('the worker never heard of it'::text, ARRAY[cardinality(v_leases)]));
    END IF;
    RETURN QUERY
        SELECT w.id, w.status, w.paused, w.draining OR shiftboss.ending(w),
            coalesce(h.cancel, '{}'), ARRAY(SELECT l FROM unnest(b.leases) l WHERE l <> ALL (coalesce(h.held, '{}')))
        FROM jsonb_to_recordset(p_beats) b (id text, leases bigint[])
        JOIN public.workers w ON w.id = b.id
        LEFT JOIN LATERAL (
            SELECT array_agg(t.lease) AS held, array_agg(t.lease) FILTER (WHERE t.cancel_requested_at IS NOT NULL) AS cancel
            FROM public.tasks t WHERE t.status = 'In Progress' AND t.worker_id = b.id) h ON true;
END $$;

-- The head of every lane that may be worked on now, one row a lane: what the scheduler decides on. Bounded by p_limit a
-- lane, and by the lane's limits. The marks are those of shiftboss.claim.
CREATE OR REPLACE FUNCTION shiftboss.waiting(p_limit int, p_mark_lanes bigint[] DEFAULT NULL, p_mark_times timestamptz[] DEFAULT NULL)
RETURNS TABLE (lane bigint, queue text, task_type text, priority smallint, tenant text, weight real, requires jsonb,
    ids uuid[], regions text[], last_ready timestamptz)
LANGUAGE sql AS $$
    SELECT l.lane, l.queue, l.task_type, l.priority, l.tenant, coalesce(n.weight, 1), l.requires, h.ids, h.regions, h.last_ready
    FROM (SELECT DISTINCT ON (x.lane) x.* FROM shiftboss.lanes x
          WHERE NOT EXISTS (SELECT FROM shiftboss.pauses_of(x.queue, x.task_type))) l
    LEFT JOIN shiftboss.tenants n ON n.name = l.tenant
    LEFT JOIN unnest(p_mark_lanes, p_mark_times) m (lane, mark) ON m.lane = l.lane
    CROSS JOIN LATERAL (SELECT CASE WHEN EXISTS (SELECT FROM shiftboss.limits_of(l.queue, l.task_type))
        THEN least(p_limit, shiftboss.headroom(l.queue, l.task_type, shiftboss.now())) ELSE p_limit END AS room) r
    CROSS JOIN LATERAL (
        SELECT array_agg(t.id) AS ids, array_agg(t.region) AS regions, max(t.ready_at) AS last_ready
        FROM (SELECT t.id, t.region, coalesce(t.run_at, t.created_at) AS ready_at FROM public.tasks t
              WHERE shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane
                AND t.status = 'Queued' AND t.hold IS NULL
                AND coalesce(t.run_at, t.created_at) >= coalesce(m.mark, '-infinity')
                AND coalesce(t.run_at, t.created_at) <= shiftboss.now()
              ORDER BY coalesce(t.run_at, t.created_at), t.id LIMIT r.room) t) h
    WHERE h.ids IS NOT NULL
$$;

-- Give each task to its worker, as far as both still stand: shiftboss.assign for many workers in one call.
-- The rows are locked by their ids alone and then written by their places: with more to go by, a plan made while the
-- statistics were old compared every waiting task with every chosen one.
CREATE OR REPLACE FUNCTION shiftboss.assign_many(p_ids uuid[], p_workers text[])
RETURNS TABLE (worker_id text, id uuid, lease bigint, task_type text, params text, attempt int, max_attempts smallint,
    queue text, priority smallint, tenant text, timeout interval, deadline timestamptz, created_at timestamptz,
    ready_at timestamptz, started_at timestamptz, run_id uuid, metadata text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_limited boolean := EXISTS (SELECT FROM shiftboss.limits);
    v_paused boolean := EXISTS (SELECT FROM shiftboss.pauses);
    v_worker text;
BEGIN
    RETURN QUERY
        WITH chosen AS MATERIALIZED (
            SELECT t.ctid AS place, x.worker, t.status, t.hold, coalesce(t.run_at, t.created_at) AS ready_at, t.queue,
                t.task_type, t.requires
            FROM unnest(p_ids, p_workers) x (id, worker) JOIN public.tasks t ON t.id = x.id
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
            status = 'In Progress', worker_id = f.worker, last_worker_id = f.worker, lease = nextval('shiftboss.lease_seq'),
            lease_expires_at = NULL, generation_started_at = v_now, generation_processed_at = NULL, wait_reason = NULL,
            progress = NULL, progress_message = NULL, updated_at = v_now
        FROM fit f WHERE t.ctid = f.place
        RETURNING f.worker, t.id, t.lease, t.task_type, t.params::text, t.attempts + 1, t.max_attempts, t.queue, t.priority,
            t.tenant, t.timeout, t.deadline, t.created_at, coalesce(t.run_at, t.created_at), t.generation_started_at,
            t.run_id, t.metadata::text;
    IF v_limited THEN
        PERFORM shiftboss.lock_limits(p_ids);
        FOR v_worker IN SELECT DISTINCT x.worker FROM unnest(p_ids, p_workers) x (id, worker)
                        JOIN public.tasks t ON t.id = x.id AND t.status = 'Queued' LOOP
            RETURN QUERY SELECT v_worker, a.id, a.lease, a.task_type, a.params::text, a.attempt, a.max_attempts, a.queue,
                    a.priority, a.tenant, a.timeout, a.deadline, a.created_at, a.ready_at, a.started_at, a.run_id, a.metadata::text
                FROM shiftboss.assign(ARRAY(SELECT x.id FROM unnest(p_ids, p_workers) x (id, worker)
                    WHERE x.worker = v_worker), v_worker) a;
        END LOOP;
    END IF;
END $$;

-- The moment, or the one nearest to it that falls into years of four digits: others know no further ones.
CREATE OR REPLACE FUNCTION shiftboss.civil(p_moment timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_moment < '0001-01-03 00:00+00' THEN '0001-01-03 00:00+00'
        WHEN p_moment > '9999-12-29 00:00+00' THEN '9999-12-29 00:00+00' ELSE p_moment END
$$;

-- Of these, the tasks that somebody else holds by that very lease: a report on one is refused.
CREATE OR REPLACE FUNCTION shiftboss.foreign_leases(p_worker text, p_ids uuid[], p_leases bigint[]) RETURNS uuid[]
LANGUAGE sql AS $$
    SELECT coalesce(array_agg(t.id), '{}') FROM unnest(p_ids, p_leases) u (id, lease)
    JOIN public.tasks t ON t.id = u.id AND t.lease = u.lease AND t.worker_id IS DISTINCT FROM p_worker
$$;

-- How attempts of many workers ended, and the statistics of it, in one transaction: what is counted is what counts.
-- Outcomes: completed, failed, timeout, postponed, cancelled; p_texts holds result, error or reason. Returns the stale ids.
-- A report that is repeated because its answer got lost is not stale, and changes nothing.
-- A lease is one worker's for ever; whether it is the reporter's, shiftboss.foreign_leases has told before.
CREATE OR REPLACE FUNCTION shiftboss.report(p_workers text[], p_ids uuid[], p_leases bigint[], p_outcomes text[],
    p_texts text[], p_seconds double precision[], p_delays double precision[], p_final boolean[]) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    d record;
BEGIN
    IF 'completed' = ALL (p_outcomes) THEN
        PERFORM shiftboss.complete(p_ids, p_leases, p_texts::jsonb[]);
    ELSE
        -- What the parts will lock one by one, in the order that everybody keeps: tasks, their dependants, limits.
        PERFORM shiftboss.lock_down(p_ids);
        PERFORM shiftboss.lock_limits(p_ids);
        FOR d IN
            SELECT CASE u.outcome WHEN 'timeout' THEN 'failed' ELSE u.outcome END AS kind, array_agg(u.id) AS ids,
                array_agg(u.lease) AS leases, array_agg(u.outcome) AS outcomes, array_agg(u.text) AS texts,
                array_agg(make_interval(secs => u.delay)) AS delays, array_agg(NOT u.final) AS retry
            FROM unnest(p_ids, p_leases, p_outcomes, p_texts, p_delays, p_final) u (id, lease, outcome, text, delay, final)
            GROUP BY 1
        LOOP
            CASE d.kind
                WHEN 'completed' THEN PERFORM shiftboss.complete(d.ids, d.leases, d.texts::jsonb[]);
                WHEN 'failed' THEN PERFORM shiftboss.fail(d.ids, d.leases, d.texts, d.outcomes, d.retry);
                WHEN 'postponed' THEN PERFORM shiftboss.defer(d.ids, d.leases, d.delays, d.texts);
                WHEN 'cancelled' THEN PERFORM shiftboss.cancelled(d.ids, d.leases);
            END CASE;
        END LOOP;
    END IF;
    RETURN CASE WHEN shiftboss.count_ended(p_ids, p_leases, p_outcomes, p_seconds) = cardinality(p_ids) THEN '{}'
        ELSE shiftboss.unheard(p_workers, p_ids, p_leases, p_outcomes) END;
END $$;

-- Put the attempts that this very transaction ended into the statistics; how many it ended. Rows that it wrote carry its
-- number: a report that comes twice finds its rows written by an earlier one, and counts nothing.
CREATE OR REPLACE FUNCTION shiftboss.count_ended(p_ids uuid[], p_leases bigint[], p_outcomes text[], p_seconds double precision[])
RETURNS int LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_me xid := pg_current_xact_id()::xid;
    v_ended int;
    v_rows shiftboss.stats[];
BEGIN
    WITH own AS (
        SELECT t.worker_id AS worker, t.queue, t.task_type, u.outcome, u.seconds
        FROM unnest(p_ids, p_leases, p_outcomes, p_seconds) u (id, lease, outcome, seconds)
        JOIN public.tasks t ON t.id = u.id
        WHERE u.outcome = 'completed' AND t.lease = u.lease AND t.xmin = v_me
        UNION ALL
        SELECT a.worker_id, t.queue, t.task_type, u.outcome, u.seconds
        FROM unnest(p_ids, p_leases, p_outcomes, p_seconds) u (id, lease, outcome, seconds)
        JOIN shiftboss.past_attempts a ON a.task_id = u.id JOIN public.tasks t ON t.id = u.id
        WHERE u.outcome <> 'completed' AND a.lease = u.lease AND a.xmin = v_me
    ), binned AS (
        SELECT worker, queue, task_type, outcome = 'completed' AS good, count(*) AS n, sum(seconds) AS seconds,
            width_bucket(seconds, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300}'::double precision[]) AS bucket
        FROM own WHERE outcome IN ('completed', 'failed', 'timeout') GROUP BY 1, 2, 3, 4, 7
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

-- Of these attempts, those that did not end by such a report of their own worker.
CREATE OR REPLACE FUNCTION shiftboss.unheard(p_workers text[], p_ids uuid[], p_leases bigint[], p_outcomes text[]) RETURNS uuid[]
LANGUAGE sql AS $$
    SELECT coalesce(array_agg(u.id), '{}') FROM unnest(p_workers, p_ids, p_leases, p_outcomes) u (worker, id, lease, outcome)
    WHERE NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = u.id AND t.lease = u.lease AND t.worker_id = u.worker
            AND t.status = 'Complete' AND u.outcome = 'completed')
      AND NOT EXISTS (SELECT FROM shiftboss.past_attempts a WHERE a.task_id = u.id AND a.lease = u.lease
            AND a.worker_id = u.worker AND CASE u.outcome WHEN 'postponed' THEN a.outcome IN ('deferred', 'released')
                ELSE a.outcome = u.outcome END)
$$;

-- A coordinator's sign of life: its figures, and what its scheduler found about lanes that it can not serve now.
CREATE OR REPLACE FUNCTION shiftboss.announce_coordinator(p_name text, p_pid int, p_workers int, p_figures jsonb,
    p_lanes bigint[], p_reasons text[], p_details text[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO shiftboss.coordinators AS c (name, pid, workers, figures) VALUES (p_name, p_pid, p_workers, p_figures)
    ON CONFLICT (name) DO UPDATE SET pid = p_pid, workers = p_workers, figures = p_figures, seen_at = shiftboss.now(),
        started_at = CASE WHEN c.pid = p_pid THEN c.started_at ELSE shiftboss.now() END;
    DELETE FROM shiftboss.coordinators WHERE seen_at < shiftboss.now() - interval '1 day';
    DELETE FROM shiftboss.lane_reasons WHERE (coordinator = p_name AND lane <> ALL (p_lanes)) OR at < shiftboss.now() - interval '1 hour';
    INSERT INTO shiftboss.lane_reasons AS r (lane, coordinator, reason, detail)
    SELECT u.lane, p_name, u.reason, u.detail FROM unnest(p_lanes, p_reasons, p_details) u (lane, reason, detail)
    ON CONFLICT (lane, coordinator) DO UPDATE SET reason = excluded.reason, detail = excluded.detail, at = shiftboss.now();
$$;

CREATE OR REPLACE FUNCTION shiftboss.withdraw_coordinator(p_name text) RETURNS void LANGUAGE sql AS $$
    DELETE FROM shiftboss.coordinators WHERE name = p_name;
    DELETE FROM shiftboss.lane_reasons WHERE coordinator = p_name;
$$;

-- What coordinators that live say about a task's lane.
CREATE OR REPLACE FUNCTION shiftboss.lane_says(p_lane bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(format('coordinator %s: %s', r.coordinator, r.detail), '; ' ORDER BY r.coordinator)
    FROM shiftboss.lane_reasons r JOIN shiftboss.coordinators c ON c.name = r.coordinator
    WHERE r.lane = p_lane AND c.seen_at > shiftboss.now() - interval '30 seconds'
$$;

-- The figures that the autoscaler decides on, over the last p_window.
CREATE OR REPLACE FUNCTION shiftboss.load(p_queue text, p_window interval DEFAULT '1 minute')
RETURNS TABLE (depth bigint, oldest_seconds double precision, running bigint, workers bigint, slots bigint,
    arrivals double precision, completions double precision, task_seconds double precision)
LANGUAGE sql AS $$
    SELECT q.depth, coalesce(extract(epoch FROM shiftboss.now() - q.oldest), 0)::double precision,
        (SELECT count(*) FROM public.tasks WHERE status = 'In Progress' AND (p_queue IS NULL OR queue = p_queue)),
        w.workers, w.slots,
        (a.waiting + a.running + d.arrived) / extract(epoch FROM p_window)::double precision,
        d.ended / extract(epoch FROM p_window)::double precision, coalesce(d.mean, 0)
    FROM (SELECT count(*) AS depth, min(coalesce(run_at, created_at)) AS oldest FROM public.tasks
          WHERE status = 'Queued' AND hold IS NULL AND coalesce(run_at, created_at) <= shiftboss.now()
            AND (p_queue IS NULL OR queue = p_queue)) q,
        (SELECT count(*) AS workers, coalesce(sum(CASE jsonb_typeof(capabilities -> 'max_concurrent_tasks')
             WHEN 'number' THEN least((capabilities ->> 'max_concurrent_tasks')::numeric, 10000)::int END), 0) AS slots
         FROM public.workers WHERE status = 'active' AND NOT draining AND (queues IS NULL OR p_queue IS NULL OR p_queue = ANY (queues))) w,
        -- three indexes know together what came in lately; no index has them all
        (SELECT (SELECT count(*) FROM public.tasks WHERE status = 'Queued' AND created_at > shiftboss.now() - p_window
                 AND (p_queue IS NULL OR queue = p_queue)) AS waiting,
                (SELECT count(*) FROM public.tasks WHERE status = 'In Progress' AND created_at > shiftboss.now() - p_window
                 AND (p_queue IS NULL OR queue = p_queue)) AS running) a,
        (SELECT count(*) AS ended, count(*) FILTER (WHERE created_at > shiftboss.now() - p_window) AS arrived, avg(greatest(extract(epoch FROM generation_processed_at - generation_started_at), 0))::double precision AS mean
         FROM public.tasks WHERE status IN ('Complete', 'Failed', 'Cancelled')
           AND generation_processed_at > shiftboss.now() - p_window AND (p_queue IS NULL OR queue = p_queue)) d
$$;

-- Fire a schedule for these ticks and set its next one. Does nothing when somebody else was there first (p_seen is no
-- longer its next tick) or it is paused. Returns the tasks made.
CREATE OR REPLACE FUNCTION shiftboss.fire(p_name text, p_seen timestamptz, p_ticks timestamptz[], p_next timestamptz)
RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    s shiftboss.schedules;
    v_tick timestamptz;
    v_id uuid;
    v_ids uuid[] := '{}';
BEGIN
    SELECT * INTO s FROM shiftboss.schedules WHERE name = p_name AND next_tick = p_seen AND NOT paused FOR UPDATE;
    IF NOT FOUND THEN
        RETURN v_ids;
    END IF;
    FOREACH v_tick IN ARRAY p_ticks LOOP
        v_id := gen_random_uuid();
        INSERT INTO shiftboss.ticks (schedule, tick, task_id) VALUES (p_name, v_tick, v_id) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            -- a dedup_key that is still live gives back the live task: the tick counts, nothing is made twice
            SELECT e.id INTO v_id FROM shiftboss.enqueue(jsonb_build_array(s.task || jsonb_build_object('id', v_id, 'metadata',
                coalesce(s.task -> 'metadata', '{}') || jsonb_build_object('schedule', p_name, 'tick', v_tick)))) e;
            v_ids := v_ids || v_id;
        END IF;
    END LOOP;
    UPDATE shiftboss.schedules SET next_tick = p_next, last_tick = coalesce(p_ticks[cardinality(p_ticks)], last_tick),
        last_task_id = coalesce(v_id, last_task_id) WHERE name = p_name;
    DELETE FROM shiftboss.ticks WHERE schedule = p_name AND tick < least(p_seen, shiftboss.now()) - interval '30 days';
    RETURN v_ids;
END $$;

-- Enqueue a schedule's task once, now, whether it is paused or not; its ticks stay as they are. NULL: there is none.
CREATE OR REPLACE FUNCTION shiftboss.run_schedule(p_name text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    s shiftboss.schedules;
    v_id uuid;
BEGIN
    SELECT * INTO s FROM shiftboss.schedules WHERE name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT e.id INTO v_id FROM shiftboss.enqueue(jsonb_build_array(s.task || jsonb_build_object('metadata',
        coalesce(s.task -> 'metadata', '{}') || jsonb_build_object('schedule', p_name)))) e;
    UPDATE shiftboss.schedules SET last_task_id = v_id WHERE name = p_name;
    RETURN v_id;
END $$;
