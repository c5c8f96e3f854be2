-- The documented monitoring views. Stale and stuck are settable: shiftboss.settings 'stale_after', 'stuck_after'.

CREATE OR REPLACE VIEW public.orchestrator_status AS
SELECT
    (SELECT count(*) FROM public.tasks WHERE status = 'Queued') AS queued_tasks,
    (SELECT count(*) FROM public.tasks WHERE status = 'In Progress') AS running_tasks,
    (SELECT count(*) FROM public.tasks WHERE status = 'Complete') AS completed_tasks,
    (SELECT count(*) FROM public.tasks WHERE status = 'Failed') AS failed_tasks,
    (SELECT count(*) FROM public.tasks WHERE status = 'Cancelled') AS cancelled_tasks,
    w.inactive_workers, w.active_workers, w.terminated_workers, w.external_workers, w.stale_workers,
    (SELECT count(*) FROM public.tasks WHERE status = 'In Progress'
        AND generation_started_at < shiftboss.now() - shiftboss.setting('stuck_after', '10 minutes')::interval) AS stuck_tasks,
    shiftboss.now() AS snapshot_time
FROM (SELECT
    count(*) FILTER (WHERE status = 'inactive') AS inactive_workers,
    count(*) FILTER (WHERE status = 'active') AS active_workers,
    count(*) FILTER (WHERE status = 'terminated') AS terminated_workers,
    count(*) FILTER (WHERE instance_type = 'external') AS external_workers,
    count(*) FILTER (WHERE status = 'active' AND coalesce(last_heartbeat, created_at)
        < shiftboss.now() - shiftboss.setting('stale_after', '5 minutes')::interval) AS stale_workers
    FROM public.workers) w;

CREATE OR REPLACE VIEW public.active_workers_health AS
SELECT w.id AS worker_id, w.instance_type, w.status, w.created_at, w.last_heartbeat,
    extract(epoch FROM shiftboss.now() - w.last_heartbeat)::double precision AS heartbeat_age_seconds,
    (w.metadata ->> 'vram_total_mb')::int AS vram_total_mb,
    (w.metadata ->> 'vram_used_mb')::int AS vram_used_mb,
    round(100.0 * (w.metadata ->> 'vram_used_mb')::numeric / nullif((w.metadata ->> 'vram_total_mb')::numeric, 0), 1)
        AS vram_usage_percent,
    t.id AS current_task_id, t.task_type AS current_task_type, t.status AS current_task_status,
    extract(epoch FROM shiftboss.now() - t.generation_started_at)::double precision AS task_runtime_seconds,
    coalesce(n.running, 0) AS running_tasks,
    CASE
        WHEN w.status = 'terminated' THEN 'TERMINATED'
        WHEN w.status = 'inactive' THEN 'INACTIVE'
        WHEN w.last_heartbeat IS NULL THEN 'NO_HEARTBEAT'
        WHEN w.last_heartbeat < shiftboss.now() - shiftboss.setting('stale_after', '5 minutes')::interval THEN 'STALE_HEARTBEAT'
        WHEN t.generation_started_at < shiftboss.now() - shiftboss.setting('stuck_after', '10 minutes')::interval THEN 'STUCK_TASK'
        ELSE 'HEALTHY'
    END AS health_status
FROM public.workers w
LEFT JOIN LATERAL (  -- the one that runs longest tells most
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
FROM (
    SELECT * FROM public.tasks WHERE status IN ('Complete', 'Failed', 'Cancelled')
        AND generation_processed_at > shiftboss.now() - interval '24 hours'
    UNION ALL
    SELECT * FROM public.tasks WHERE status = 'In Progress'
    UNION ALL
    SELECT * FROM public.tasks WHERE status = 'Queued' AND created_at > shiftboss.now() - interval '24 hours'
    UNION ALL  -- made before, but touched since: a retry that waits
    SELECT * FROM public.tasks WHERE status = 'Queued' AND created_at <= shiftboss.now() - interval '24 hours'
        AND updated_at > shiftboss.now() - interval '24 hours' AND attempts > 0
) t
ORDER BY t.updated_at DESC;

-- Failures are counted by attempt, so that a worker whose failures others made good still shows them.
CREATE OR REPLACE VIEW public.worker_performance AS
SELECT w.id AS worker_id, w.instance_type, w.status,
    d.completed + coalesce(f.failed, 0) AS total_tasks, d.completed AS completed_tasks, coalesce(f.failed, 0) AS failed_tasks,
    round(100.0 * d.completed / nullif(d.completed + coalesce(f.failed, 0), 0), 1) AS success_rate_percent,
    d.avg_processing_time_seconds,
    round((extract(epoch FROM coalesce(w.last_heartbeat, w.created_at) - w.created_at) / 3600.0)::numeric, 2) AS uptime_hours
FROM public.workers w
LEFT JOIN LATERAL (
    SELECT count(*) AS completed, round(avg(greatest(extract(epoch FROM t.generation_processed_at - t.generation_started_at), 0))::numeric, 3)
        AS avg_processing_time_seconds
    FROM public.tasks t WHERE t.status = 'Complete' AND t.worker_id = w.id
      AND t.generation_processed_at > shiftboss.now() - interval '7 days') d ON true
LEFT JOIN (
    SELECT worker_id, count(*) AS failed FROM shiftboss.past_attempts
    WHERE outcome IN ('failed', 'timeout', 'lost', 'crashed') AND ended_at > shiftboss.now() - interval '7 days'
    GROUP BY worker_id) f ON f.worker_id = w.id;

CREATE OR REPLACE VIEW public.task_queue_analysis AS
SELECT coalesce(q.task_type, d.task_type) AS task_type,
    coalesce(q.queued_count, 0) AS queued_count, q.avg_queue_time_seconds, q.max_queue_time_seconds,
    coalesce(q.running_count, 0) AS running_count, coalesce(d.completed_count, 0) AS completed_count,
    coalesce(d.failed_count, 0) AS failed_count,
    d.avg_processing_time_seconds, d.min_processing_time_seconds, d.max_processing_time_seconds, d.p50_processing_time_seconds,
    d.p95_processing_time_seconds,
    round(100.0 * d.failed_count / nullif(d.completed_count + d.failed_count, 0), 1) AS error_rate_percent
FROM (
    SELECT task_type, count(*) FILTER (WHERE status = 'Queued') AS queued_count,
        count(*) FILTER (WHERE status = 'In Progress') AS running_count,
        round(avg(extract(epoch FROM shiftboss.now() - created_at)) FILTER (WHERE status = 'Queued'), 3) AS avg_queue_time_seconds,
        round(max(extract(epoch FROM shiftboss.now() - created_at)) FILTER (WHERE status = 'Queued'), 3) AS max_queue_time_seconds
    FROM public.tasks WHERE status IN ('Queued', 'In Progress') GROUP BY task_type) q
FULL JOIN (
    SELECT task_type, count(*) FILTER (WHERE status = 'Complete') AS completed_count,
        count(*) FILTER (WHERE status = 'Failed') AS failed_count,
        round(avg(s), 3) AS avg_processing_time_seconds, round(min(s), 3) AS min_processing_time_seconds,
        round(max(s), 3) AS max_processing_time_seconds,
        round(percentile_cont(0.5) WITHIN GROUP (ORDER BY s)::numeric, 3) AS p50_processing_time_seconds,
        round(percentile_cont(0.95) WITHIN GROUP (ORDER BY s)::numeric, 3) AS p95_processing_time_seconds
    FROM (SELECT task_type, status, greatest(extract(epoch FROM generation_processed_at - generation_started_at), 0) AS s
          FROM public.tasks WHERE status IN ('Complete', 'Failed')
            AND generation_processed_at > shiftboss.now() - interval '7 days') x
    GROUP BY task_type) d ON d.task_type = q.task_type;
