-- Figures over time, for charts and the snapshot.

-- One row per step, also for those in which nothing happened, oldest first.
CREATE OR REPLACE FUNCTION shiftboss.throughput(p_span interval, p_step interval, p_queue text DEFAULT NULL,
    p_task_type text DEFAULT NULL)
RETURNS TABLE (at timestamptz, completed bigint, failed bigint, seconds double precision, buckets bigint[])
LANGUAGE sql STABLE AS $$
    WITH steps AS (
        SELECT generate_series(date_bin(p_step, shiftboss.now() - p_span, '2000-01-01Z') + p_step, shiftboss.now(), p_step) AS at
    ), done AS (
        SELECT date_bin(p_step, minute, '2000-01-01Z') AS at, sum(completed) AS completed, sum(failed) AS failed,
            sum(seconds) AS seconds, shiftboss.sum_buckets(buckets) AS buckets
        FROM shiftboss.stats WHERE minute > shiftboss.now() - p_span - p_step
          AND (p_queue IS NULL OR queue = p_queue) AND (p_task_type IS NULL OR task_type = p_task_type) GROUP BY 1
    )
    SELECT s.at, coalesce(d.completed, 0)::bigint, coalesce(d.failed, 0)::bigint, coalesce(d.seconds, 0),
        coalesce(d.buckets, '{}')
    FROM steps s LEFT JOIN done d USING (at) ORDER BY s.at
$$;

-- Of the newest completed tasks of the last hour, whoever ran them.
CREATE OR REPLACE FUNCTION shiftboss.latency(p_sample int DEFAULT 1000)
RETURNS TABLE (p50_ms double precision, avg_ms double precision, max_ms double precision) LANGUAGE sql STABLE AS $$
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), avg(ms), max(ms)
    FROM (SELECT 1000 * greatest(extract(epoch FROM generation_processed_at - generation_started_at), 0)::float8 AS ms
          FROM public.tasks WHERE status IN ('Complete', 'Failed', 'Cancelled') AND status = 'Complete'
            AND generation_processed_at > shiftboss.now() - interval '1 hour'
          ORDER BY generation_processed_at DESC LIMIT p_sample) x
$$;
