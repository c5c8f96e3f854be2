-- Figures over time, for charts and the snapshot.

-- The statistics since p_from in steps, without empty ones. Explicit sums are many times as fast as sum_buckets.
CREATE OR REPLACE FUNCTION shiftboss.stats_since(p_from timestamptz, p_step interval, p_queue text, p_task_type text)
RETURNS TABLE (at timestamptz, completed bigint, failed bigint, seconds double precision, buckets bigint[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    -- Slots hold everything up to the last one. A step that is no multiple of a slot reads only minutes.
    WITH folded AS (
        SELECT max(slot) + interval '20 minutes' AS until FROM shiftboss.stats_slots
        WHERE extract(epoch FROM p_step)::numeric % 1200 = 0
    )
    SELECT date_bin(p_step, x.at, '2000-01-01Z'), sum(x.completed)::bigint, sum(x.failed)::bigint, sum(x.seconds),
        array_replace(ARRAY[
            sum(b[1]::float8), sum(b[2]::float8), sum(b[3]::float8), sum(b[4]::float8), sum(b[5]::float8),
            sum(b[6]::float8), sum(b[7]::float8), sum(b[8]::float8), sum(b[9]::float8), sum(b[10]::float8),
            sum(b[11]::float8), sum(b[12]::float8), sum(b[13]::float8), sum(b[14]::float8), sum(b[15]::float8)
        ]::bigint[], NULL, 0)
    FROM (
        SELECT slot AS at, queue, task_type, completed, failed, seconds, buckets AS b FROM shiftboss.stats_slots
        WHERE slot >= p_from AND slot < (SELECT until FROM folded)
        UNION ALL
        SELECT minute, queue, task_type, completed, failed, seconds, buckets FROM shiftboss.stats
        WHERE minute >= greatest(p_from, (SELECT until FROM folded))) x
    WHERE (p_queue IS NULL OR x.queue = p_queue) AND (p_task_type IS NULL OR x.task_type = p_task_type) GROUP BY 1
$$;

-- Add complete slots of 20 minutes to stats_slots, oldest first, at most a day of them per call. Minutes no longer
-- change once they are over; two minutes are left for transactions that have not committed yet.
CREATE OR REPLACE FUNCTION shiftboss.fold_stats() RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH span AS (
        SELECT date_bin('20 minutes', min(minute), '2000-01-01Z') AS low FROM shiftboss.stats WHERE minute >= coalesce(
            (SELECT max(slot) + interval '20 minutes' FROM shiftboss.stats_slots), '2000-01-01Z')
    ), bounds AS (
        SELECT low, least(low + interval '1 day', date_bin('20 minutes', shiftboss.now() - interval '2 minutes',
            '2000-01-01Z')) AS high FROM span
    )
    INSERT INTO shiftboss.stats_slots (slot, queue, task_type, completed, failed, seconds, buckets)
    SELECT date_bin('20 minutes', minute, '2000-01-01Z'), queue, task_type, sum(completed), sum(failed), sum(seconds),
        array_replace(ARRAY[
            sum(b[1]::float8), sum(b[2]::float8), sum(b[3]::float8), sum(b[4]::float8), sum(b[5]::float8),
            sum(b[6]::float8), sum(b[7]::float8), sum(b[8]::float8), sum(b[9]::float8), sum(b[10]::float8),
            sum(b[11]::float8), sum(b[12]::float8), sum(b[13]::float8), sum(b[14]::float8), sum(b[15]::float8)
        ]::bigint[], NULL, 0)
    FROM (SELECT *, buckets AS b FROM shiftboss.stats) s, bounds WHERE minute >= low AND minute < high GROUP BY 1, 2, 3
    ON CONFLICT DO NOTHING
$$;

-- One row per step, including empty ones, oldest first.
CREATE OR REPLACE FUNCTION shiftboss.throughput(p_span interval, p_step interval, p_queue text DEFAULT NULL,
    p_task_type text DEFAULT NULL)
RETURNS TABLE (at timestamptz, completed bigint, failed bigint, seconds double precision, buckets bigint[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH given AS (  -- date_bin does not support months
        SELECT make_interval(secs => extract(epoch FROM p_step)::float8) AS step
    ), steps AS (
        SELECT generate_series(date_bin(step, shiftboss.now() - p_span, '2000-01-01Z') + step, shiftboss.now(),
            step) AS at FROM given
    )
    SELECT s.at, coalesce(d.completed, 0)::bigint, coalesce(d.failed, 0)::bigint, coalesce(d.seconds, 0),
        coalesce(d.buckets, '{}')
    FROM steps s LEFT JOIN (SELECT d.* FROM given, shiftboss.stats_since(shiftboss.now() - p_span - step, step, p_queue,
        p_task_type) d) d USING (at) ORDER BY s.at
$$;

-- The latency of the latest completed tasks of the last hour, of all workers.
CREATE OR REPLACE FUNCTION shiftboss.latency(p_sample int DEFAULT 1000)
RETURNS TABLE (p50_ms double precision, avg_ms double precision, max_ms double precision) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), avg(ms), max(ms)
    FROM (SELECT 1000 * greatest(extract(epoch FROM generation_processed_at - generation_started_at), 0)::float8 AS ms
          FROM public.tasks WHERE status IN ('Complete', 'Failed', 'Cancelled') AND status = 'Complete'
            AND generation_processed_at > shiftboss.now() - interval '1 hour'
          ORDER BY generation_processed_at DESC LIMIT p_sample) x
$$;

-- Up to p_most tasks that wait for a worker, oldest first, without suspended ones. If more than p_most tasks are
-- suspended, a scan by age would read all of them: the tasks are then read lane by lane and hold by hold, in no
-- particular order.
CREATE OR REPLACE FUNCTION shiftboss.waiting_within(p_most bigint)
RETURNS TABLE (queue text, hold text, due timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
    WITH many AS MATERIALIZED (
        SELECT EXISTS (SELECT FROM public.tasks t WHERE t.status = 'Queued' AND t.hold IN ('sleep', 'event', 'child')
            OFFSET p_most) AS suspended
    )
    (SELECT t.queue, t.hold, coalesce(t.run_at, t.created_at) FROM public.tasks t
     WHERE NOT (SELECT suspended FROM many)
       AND t.status = 'Queued' AND (t.hold IS NULL OR t.hold NOT IN ('sleep', 'event', 'child'))
     ORDER BY t.created_at LIMIT p_most)
    UNION ALL
    (SELECT w.* FROM (
        SELECT t.* FROM shiftboss.every_lane() l CROSS JOIN LATERAL (
            SELECT t.queue, t.hold, coalesce(t.run_at, t.created_at) FROM public.tasks t
            WHERE t.status = 'Queued' AND t.hold IS NULL
              AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane LIMIT p_most) t
        UNION ALL
        SELECT t.queue, t.hold, coalesce(t.run_at, t.created_at) FROM public.tasks t WHERE t.status = 'Queued'
            AND t.hold = 'limit'
        UNION ALL
        SELECT t.queue, t.hold, coalesce(t.run_at, t.created_at) FROM public.tasks t WHERE t.status = 'Queued'
            AND t.hold = 'dependency'
        UNION ALL
        SELECT t.queue, t.hold, coalesce(t.run_at, t.created_at) FROM shiftboss.unusable u JOIN public.tasks t
            ON t.id = u.task_id
        WHERE t.status = 'Queued' AND t.hold = 'unusable') w
     WHERE (SELECT suspended FROM many) LIMIT p_most)
$$;

-- The content of the view shiftboss.queues at a bounded cost: only p_most waiting tasks are counted, and `more` says
-- whether there are others. A queue whose tasks are all among the others counts one. The oldest task of each queue is
-- always found in the claim's index.
CREATE OR REPLACE FUNCTION shiftboss.queues_within(p_most bigint)
RETURNS TABLE (name text, queued bigint, ready bigint, running bigint, oldest_seconds double precision, paused boolean,
    pause_reason text, paused_at timestamptz, max_running int, rate int, rate_seconds double precision, workers bigint,
    more boolean, rate_per text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH lanes AS MATERIALIZED (SELECT lane, queue FROM shiftboss.every_lane()), seen AS MATERIALIZED (
        SELECT queue, hold, due FROM shiftboss.waiting_within(p_most)
    ), waiting AS (
        SELECT queue, count(*) AS queued,
            -- A subquery, so that the clock is read once and not for each row.
            count(*) FILTER (WHERE hold IS NULL AND due <= (SELECT shiftboss.now())) AS ready
        FROM seen GROUP BY queue
    ), first AS (
        SELECT l.queue, min(t.due) AS due
        FROM lanes l CROSS JOIN LATERAL (
            SELECT coalesce(t.run_at, t.created_at) AS due FROM public.tasks t
            WHERE t.status = 'Queued' AND t.hold IS NULL
              AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane
            ORDER BY shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires),
                coalesce(t.run_at, t.created_at), t.id LIMIT 1) t
        GROUP BY l.queue
    ), busy AS (
        SELECT queue, count(*) AS running FROM public.tasks WHERE status = 'In Progress' GROUP BY queue
    ), names AS (
        SELECT queue AS name FROM waiting UNION SELECT queue FROM busy UNION SELECT queue FROM lanes
        UNION SELECT name FROM shiftboss.pauses WHERE kind = 'queue'
        UNION SELECT name FROM shiftboss.limits WHERE kind = 'queue'
        UNION SELECT unnest(queues) FROM public.workers WHERE status = 'active'
    )
    SELECT n.name, coalesce(greatest(w.queued, (f.queue IS NOT NULL)::int), 0), coalesce(w.ready, 0),
        coalesce(b.running, 0),
        greatest(extract(epoch FROM shiftboss.now() - f.due), 0)::double precision,
        p.name IS NOT NULL, p.reason, p.paused_at, l.max_running, l.rate,
        extract(epoch FROM l.rate_period)::double precision,
        (SELECT count(*) FROM public.workers w WHERE w.status = 'active'
            AND (w.queues IS NULL OR n.name = ANY (w.queues))),
        (SELECT count(*) FROM seen) >= p_most, l.rate_per
    FROM names n LEFT JOIN waiting w ON w.queue = n.name LEFT JOIN first f ON f.queue = n.name
    LEFT JOIN busy b ON b.queue = n.name
    LEFT JOIN shiftboss.pauses p ON p.kind = 'queue' AND p.name = n.name
    LEFT JOIN shiftboss.limits l ON l.kind = 'queue' AND l.name = n.name
$$;
