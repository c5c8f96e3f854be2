-- Views of the read model in addition to the documented ones.

CREATE OR REPLACE VIEW shiftboss.members AS
SELECT h.*, w.queues, w.capabilities, w.resource_limits, w.resource_usage, w.region, w.host, w.pid, w.version,
    w.paused,
    w.draining, w.metadata, w.lease_expires_at
FROM public.active_workers_health h JOIN public.workers w ON w.id = h.worker_id;

CREATE OR REPLACE VIEW shiftboss.queues AS
WITH live AS (
    -- Suspended tasks do not wait for a worker.
    SELECT queue, count(*) FILTER (WHERE status = 'Queued'
        AND (hold IS NULL OR hold NOT IN ('sleep', 'event', 'child'))) AS queued,
        count(*) FILTER (WHERE status = 'In Progress') AS running,
        -- A subquery, so that the clock is read once and not for each row.
        count(*) FILTER (WHERE status = 'Queued' AND hold IS NULL
            AND coalesce(run_at, created_at) <= (SELECT shiftboss.now())) AS ready,
        min(coalesce(run_at, created_at)) FILTER (WHERE status = 'Queued' AND hold IS NULL) AS oldest
    FROM (SELECT queue, status, hold, run_at, created_at FROM public.tasks WHERE status = 'Queued'
          UNION ALL  -- each state has its own index
          SELECT queue, status, hold, run_at, created_at FROM public.tasks WHERE status = 'In Progress') t
              GROUP BY queue
), names AS (
    SELECT queue AS name FROM live UNION SELECT queue FROM shiftboss.lanes
    UNION SELECT name FROM shiftboss.pauses WHERE kind = 'queue'
    UNION SELECT name FROM shiftboss.limits WHERE kind = 'queue'
    UNION SELECT unnest(queues) FROM public.workers WHERE status = 'active'
)
SELECT n.name, coalesce(q.queued, 0) AS queued, coalesce(q.ready, 0) AS ready, coalesce(q.running, 0) AS running,
    greatest(extract(epoch FROM shiftboss.now() - q.oldest), 0)::double precision AS oldest_seconds,
    p.name IS NOT NULL AS paused, p.reason AS pause_reason, p.paused_at, l.max_running, l.rate,
    extract(epoch FROM l.rate_period)::double precision AS rate_seconds,
    (SELECT count(*) FROM public.workers w WHERE w.status = 'active'
        AND (w.queues IS NULL OR n.name = ANY (w.queues))) AS workers,
    l.rate_per
FROM names n LEFT JOIN live q ON q.queue = n.name
LEFT JOIN shiftboss.pauses p ON p.kind = 'queue' AND p.name = n.name
LEFT JOIN shiftboss.limits l ON l.kind = 'queue' AND l.name = n.name;

CREATE OR REPLACE VIEW shiftboss.task_types AS
WITH seen AS (SELECT task_type AS name, array_agg(DISTINCT queue) AS queues FROM shiftboss.every_lane() GROUP BY 1)
SELECT name, coalesce(s.queues, '{}') AS queues, p.name IS NOT NULL AS paused, p.reason AS pause_reason, p.paused_at,
    l.max_running, l.max_per_key, l.rate, extract(epoch FROM l.rate_period)::double precision AS rate_seconds,
    l.set_by AS limits_set_by, l.code AS limits_in_code, l.rate_per
FROM seen s
FULL JOIN (SELECT * FROM shiftboss.pauses WHERE kind = 'task_type') p USING (name)
FULL JOIN (SELECT * FROM shiftboss.limits WHERE kind = 'task_type') l USING (name);

-- All error groups, including at most 20,000 failures that the leader has not added to them yet.
CREATE OR REPLACE VIEW shiftboss.errors AS
SELECT id, coalesce(n.error_type, g.error_type) AS error_type, coalesce(n.place, g.place) AS place,
    CASE WHEN n.id IS NULL THEN g.message ELSE n.message END AS message,
    least(g.first_seen, n.first_seen) AS first_seen, greatest(g.last_seen, n.last_seen) AS last_seen,
    coalesce(g.count, 0) + coalesce(n.count, 0) AS count,
    shiftboss.latest_names(n.task_types, g.task_types) AS task_types,
    shiftboss.latest_names(n.versions, g.versions) AS versions,
    shiftboss.latest_names(n.workers, g.workers) AS workers, coalesce(n.task_id, g.task_id) AS task_id
FROM shiftboss.error_groups g FULL JOIN shiftboss.new_errors() n USING (id);
