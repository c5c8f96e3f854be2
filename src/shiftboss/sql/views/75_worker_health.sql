CREATE OR REPLACE VIEW shiftboss.worker_health AS
SELECT w.id AS worker_id,
    CASE WHEN w.status <> 'active' OR w.last_heartbeat IS NULL OR w.lease_expires_at < shiftboss.now() THEN 'unhealthy'
         WHEN w.last_heartbeat < shiftboss.now() - w.lease_time * 0.5
             OR (s.lately_failed >= 5 AND s.lately_failed * 2 > s.lately)
             THEN 'degraded'
         ELSE 'healthy' END AS status,
    w.last_heartbeat,
    (SELECT count(*) FROM public.tasks t WHERE t.status = 'In Progress' AND t.worker_id = w.id) AS active_tasks,
    coalesce(s.processed, 0) AS processed_today,
    coalesce(s.failed::double precision / nullif(s.processed, 0), 0) AS error_rate,
    coalesce(s.seconds / nullif(s.processed, 0), 0) AS avg_processing_time,
    w.resource_usage, coalesce(shiftboss.whole_number(w.resource_usage -> 'goroutine_count'), 0) AS goroutine_count
FROM public.workers w
LEFT JOIN (
    SELECT worker_id, sum(completed + failed)::bigint AS processed, sum(failed)::bigint AS failed,
        sum(seconds) AS seconds,
        sum(completed + failed) FILTER (WHERE minute > shiftboss.now() - interval '10 minutes') AS lately,
        sum(failed) FILTER (WHERE minute > shiftboss.now() - interval '10 minutes') AS lately_failed
    FROM shiftboss.stats
    WHERE minute >= date_trunc('day', shiftboss.now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' GROUP BY worker_id
) s ON s.worker_id = w.id;
