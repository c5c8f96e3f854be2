-- Slots for display, metrics and alerts.

CREATE OR REPLACE VIEW shiftboss.slots AS
SELECT h.component, h.queue, h.host, h.member_id, h.status, h.pid, h.current_job, h.restart_count, h.last_restart,
    h.last_seen,
    h.created_at, shiftboss.flag(h.details_json -> 'paused') AS paused,
    h.details_json ->> 'error_message' AS error_message,
    greatest(shiftboss.epoch() - h.last_seen, 0) AS seconds_since_beat,
    (SELECT count(*) FROM unnest(h.restarts) r WHERE r > shiftboss.epoch() - 300) AS recent_restarts,
    coalesce(shiftboss.is_supervised(h.host), false) AS supervised
FROM public.health h;

CREATE OR REPLACE VIEW shiftboss.health_metrics AS
SELECT t.restarts AS restarts_total, t.crashes AS crashes_total,
    CASE WHEN t.last_crash IS NOT NULL
        THEN greatest(shiftboss.epoch() - t.last_crash, 0) END AS seconds_since_last_crash,
    h.restart_count, h.starting, h.healthy, h.stopping, h.crashed, h.failed, h.paused
FROM (SELECT coalesce(sum(restarts), 0)::bigint AS restarts, coalesce(sum(crashes), 0)::bigint AS crashes,
          max(last_crash) AS last_crash FROM shiftboss.slot_totals) t
CROSS JOIN (SELECT coalesce(sum(restart_count), 0)::bigint AS restart_count,
    count(*) FILTER (WHERE status = 'starting') AS starting, count(*) FILTER (WHERE status = 'healthy') AS healthy,
    count(*) FILTER (WHERE status = 'stopping') AS stopping, count(*) FILTER (WHERE status = 'crashed') AS crashed,
    count(*) FILTER (WHERE status = 'failed') AS failed, count(*) FILTER (WHERE paused) AS paused
    FROM shiftboss.slots) h;

CREATE OR REPLACE VIEW shiftboss.health_alerts AS
SELECT 'worker_failed' AS alert, component,
    format('%s is failed: %s', component, coalesce(error_message, 'too many restarts')) AS message
FROM shiftboss.slots WHERE status = 'failed'
UNION ALL
SELECT 'worker_restarts', component, format('%s was restarted %s times in 5 minutes', component, recent_restarts)
FROM shiftboss.slots WHERE recent_restarts > 3
UNION ALL
SELECT 'all_workers_crashed', NULL, format('all %s workers are crashed or failed', count(*))
FROM shiftboss.slots HAVING count(*) > 0 AND count(*) = count(*) FILTER (WHERE status IN ('crashed', 'failed'));
