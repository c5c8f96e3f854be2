-- The documented monitoring views. The settings 'stale_after' and 'stuck_after' in shiftboss.settings define stale and
-- stuck.

-- Figures of finished tasks come from rollups (functions/31_tally.sql): no view reads the history. Settings and the
-- clock are read in subqueries, once and not for each row.

CREATE OR REPLACE VIEW shiftboss.finished_totals AS
SELECT status, sum(in_table)::bigint AS in_table
FROM (SELECT status, in_table FROM shiftboss.task_totals UNION ALL SELECT status, in_table FROM shiftboss.tallies) x
GROUP BY status;

CREATE OR REPLACE VIEW public.orchestrator_status AS
SELECT
    (SELECT count(*) FROM public.tasks WHERE status = 'Queued') AS queued_tasks,
    (SELECT count(*) FROM public.tasks WHERE status = 'In Progress') AS running_tasks,
    f.completed_tasks, f.failed_tasks, f.cancelled_tasks,
    w.inactive_workers, w.active_workers, w.terminated_workers, w.external_workers, w.stale_workers,
    (SELECT count(*) FROM public.tasks WHERE status = 'In Progress'
        AND generation_started_at < shiftboss.now() - (SELECT shiftboss.setting('stuck_after',
            '10 minutes')::interval)) AS stuck_tasks,
    shiftboss.now() AS snapshot_time,
    (SELECT count(*) FROM public.tasks WHERE status = 'Queued'
        AND hold IN ('sleep', 'event', 'child')) AS suspended_tasks
FROM (SELECT
    count(*) FILTER (WHERE status = 'inactive') AS inactive_workers,
    count(*) FILTER (WHERE status = 'active') AS active_workers,
    count(*) FILTER (WHERE status = 'terminated') AS terminated_workers,
    count(*) FILTER (WHERE instance_type = 'external') AS external_workers,
    count(*) FILTER (WHERE status = 'active' AND coalesce(last_heartbeat, created_at)
        < (SELECT shiftboss.now() - shiftboss.setting('stale_after', '5 minutes')::interval)) AS stale_workers
    FROM public.workers) w,
    (SELECT coalesce(sum(in_table) FILTER (WHERE status = 'Complete'), 0)::bigint AS completed_tasks,
        coalesce(sum(in_table) FILTER (WHERE status = 'Failed'), 0)::bigint AS failed_tasks,
        coalesce(sum(in_table) FILTER (WHERE status = 'Cancelled'), 0)::bigint AS cancelled_tasks
    FROM shiftboss.finished_totals) f;

CREATE OR REPLACE VIEW public.active_workers_health AS
SELECT w.id AS worker_id, w.instance_type, w.status, w.created_at, w.last_heartbeat,
    extract(epoch FROM shiftboss.now() - w.last_heartbeat)::double precision AS heartbeat_age_seconds,
    shiftboss.whole_number(w.metadata -> 'vram_total_mb') AS vram_total_mb,
    shiftboss.whole_number(w.metadata -> 'vram_used_mb') AS vram_used_mb,
    round(100.0 * shiftboss.number(w.metadata -> 'vram_used_mb')
        / nullif(shiftboss.number(w.metadata -> 'vram_total_mb'), 0), 1) AS vram_usage_percent,
    t.id AS current_task_id, t.task_type AS current_task_type, t.status AS current_task_status,
    extract(epoch FROM shiftboss.now() - t.generation_started_at)::double precision AS task_runtime_seconds,
    coalesce(n.running, 0) AS running_tasks,
    CASE
        WHEN w.status = 'terminated' THEN 'TERMINATED'
        WHEN w.status = 'inactive' THEN 'INACTIVE'
        WHEN w.last_heartbeat IS NULL THEN 'NO_HEARTBEAT'
        WHEN w.last_heartbeat < (SELECT shiftboss.now() - shiftboss.setting('stale_after', '5 minutes')::interval)
            THEN 'STALE_HEARTBEAT'
        WHEN t.generation_started_at < (SELECT shiftboss.now() - shiftboss.setting('stuck_after',
            '10 minutes')::interval) THEN 'STUCK_TASK'
        ELSE 'HEALTHY'
    END AS health_status
FROM public.workers w
LEFT JOIN LATERAL (  -- the task that has been running longest
    SELECT id, task_type, status, generation_started_at FROM public.tasks
    WHERE status = 'In Progress' AND worker_id = w.id ORDER BY generation_started_at LIMIT 1) t ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS running FROM public.tasks WHERE status = 'In Progress' AND worker_id = w.id) n ON true;

CREATE OR REPLACE VIEW public.recent_task_activity AS
SELECT t.id AS task_id, t.task_type, t.status, coalesce(t.worker_id, t.last_worker_id) AS worker_id, t.attempts,
    t.created_at, t.generation_started_at, t.generation_processed_at,
    CASE WHEN t.generation_started_at IS NOT NULL THEN greatest(extract(epoch FROM
        coalesce(t.generation_processed_at, shiftboss.now()) - t.generation_started_at), 0)::double precision END
        AS processing_duration_seconds,
    CASE WHEN t.generation_started_at IS NOT NULL THEN greatest(extract(epoch FROM
        t.generation_started_at - t.created_at), 0)::double precision END AS queue_duration_seconds,
    t.error_message, t.updated_at
FROM (  -- each state is read from its own index, newest first; with a LIMIT, the merge reads only that many rows
    (SELECT *, generation_processed_at AS at FROM public.tasks WHERE status IN ('Complete', 'Failed', 'Cancelled')
        AND generation_processed_at > shiftboss.now() - interval '24 hours' ORDER BY generation_processed_at DESC)
    UNION ALL
    (SELECT *, generation_started_at FROM public.tasks WHERE status = 'In Progress'
        ORDER BY generation_started_at DESC)
    UNION ALL
    (SELECT *, created_at FROM public.tasks WHERE status = 'Queued'
        AND created_at > shiftboss.now() - interval '24 hours'
        ORDER BY created_at DESC)
    UNION ALL  -- created earlier but updated since, such as a waiting retry
    (SELECT *, created_at FROM public.tasks WHERE status = 'Queued'
        AND created_at <= shiftboss.now() - interval '24 hours'
        AND updated_at > shiftboss.now() - interval '24 hours' AND attempts > 0 ORDER BY created_at DESC)
) t
ORDER BY t.at DESC;

CREATE OR REPLACE VIEW public.worker_performance AS
SELECT w.id AS worker_id, w.instance_type, w.status,
    coalesce(d.completed + d.failed, 0) AS total_tasks, coalesce(d.completed, 0) AS completed_tasks,
    coalesce(d.failed, 0) AS failed_tasks,
    round(100.0 * d.completed / nullif(d.completed + d.failed, 0), 1) AS success_rate_percent,
    round((d.seconds / nullif(d.completed, 0))::numeric, 3) AS avg_processing_time_seconds,
    round((extract(epoch FROM coalesce(w.last_heartbeat, w.created_at) - w.created_at) / 3600.0)::numeric,
        2) AS uptime_hours
FROM public.workers w
LEFT JOIN (
    SELECT worker_id, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed, sum(seconds) AS seconds
    FROM (SELECT step, worker_id, completed, failed, seconds FROM shiftboss.worker_totals
          UNION ALL
          SELECT step, worker_id, CASE status WHEN 'Complete' THEN ended ELSE 0 END, failed,
              CASE status WHEN 'Complete' THEN seconds ELSE 0 END FROM shiftboss.tallies) x
    WHERE step > (SELECT shiftboss.now() - interval '7 days 6 hours') GROUP BY worker_id) d ON d.worker_id = w.id;

CREATE OR REPLACE VIEW public.task_queue_analysis AS
WITH waiting AS (
    SELECT task_type, count(*) AS queued_count, round(avg(age), 3) AS avg_queue_time_seconds,
        round(max(age), 3) AS max_queue_time_seconds
    -- suspended tasks do not wait for a worker
    FROM (SELECT task_type, CASE WHEN hold IS NULL OR hold NOT IN ('sleep', 'event', 'child')
                 THEN extract(epoch FROM (SELECT shiftboss.now()) - created_at) END AS age
          FROM public.tasks WHERE status = 'Queued') x GROUP BY task_type
), running AS (
    SELECT task_type, count(*) AS running_count FROM public.tasks WHERE status = 'In Progress' GROUP BY task_type
), binned AS (
    SELECT task_type, bucket, sum(ended) FILTER (WHERE status = 'Complete') AS completed,
        sum(ended) FILTER (WHERE status = 'Failed') AS failed, sum(seconds) AS seconds,
        greatest(sum(ended) FILTER (WHERE bucket >= 0), 0) AS timed, min(least) AS least, max(most) AS most
    FROM (SELECT step, task_type, status, bucket, ended, seconds, least, most FROM shiftboss.type_totals
          UNION ALL
          SELECT step, task_type, status, bucket, ended, seconds, least, most FROM shiftboss.tallies
              WHERE ended <> 0) x
    WHERE step > (SELECT shiftboss.now() - interval '7 days 6 hours') AND status IN ('Complete', 'Failed')
    GROUP BY task_type, bucket
), ranked AS (
    SELECT *, sum(timed) OVER (PARTITION BY task_type ORDER BY bucket) - timed AS before,
        sum(timed) OVER (PARTITION BY task_type) AS total FROM binned
), finished AS (
    SELECT task_type, coalesce(sum(completed), 0)::bigint AS completed_count,
        coalesce(sum(failed), 0)::bigint AS failed_count,
        round((sum(seconds) / nullif(sum(timed), 0))::numeric, 3) AS avg_processing_time_seconds,
        round(min(least)::numeric, 3) AS min_processing_time_seconds,
            round(max(most)::numeric, 3) AS max_processing_time_seconds,
        round(max(shiftboss.rank_time(0.5, total, before, timed, least, most))::numeric,
            3) AS p50_processing_time_seconds,
        round(max(shiftboss.rank_time(0.95, total, before, timed, least, most))::numeric,
            3) AS p95_processing_time_seconds
    FROM ranked GROUP BY task_type
)
SELECT task_type, coalesce(w.queued_count, 0) AS queued_count, w.avg_queue_time_seconds, w.max_queue_time_seconds,
    coalesce(r.running_count, 0) AS running_count, coalesce(f.completed_count, 0) AS completed_count,
    coalesce(f.failed_count, 0) AS failed_count,
    f.avg_processing_time_seconds, f.min_processing_time_seconds, f.max_processing_time_seconds,
        f.p50_processing_time_seconds,
    f.p95_processing_time_seconds,
    round(100.0 * f.failed_count / nullif(f.completed_count + f.failed_count, 0), 1) AS error_rate_percent
FROM waiting w FULL JOIN running r USING (task_type) FULL JOIN finished f USING (task_type);
