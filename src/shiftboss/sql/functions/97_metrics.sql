-- Figures for /metrics, at a cost that does not depend on the history or the backlog.

CREATE OR REPLACE FUNCTION shiftboss.count_up(p_name text, p_by bigint DEFAULT 1) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.counter_tallies (name, value) VALUES (p_name, p_by)
$$;

-- Add the tallies to the counters. The leader calls this every few seconds.
CREATE OR REPLACE FUNCTION shiftboss.fold_counters() RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (DELETE FROM shiftboss.counter_tallies RETURNING *)
    INSERT INTO shiftboss.counters AS c (name, value) SELECT name, sum(value) FROM gone GROUP BY name ORDER BY name
    ON CONFLICT (name) DO UPDATE SET value = c.value + excluded.value
$$;

-- Attempts by worker and task type: of active workers, and of others for five minutes after their last report, so that
-- a scrape sees their final figures. Beyond p_most rows, the smallest are added up as "other".
CREATE OR REPLACE FUNCTION shiftboss.work_metrics(p_most int DEFAULT 2000)
RETURNS TABLE (worker_id text, task_type text, completed bigint, failed bigint, seconds double precision,
    buckets bigint[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH live AS (
        SELECT t.*, row_number() OVER (ORDER BY t.completed + t.failed DESC, t.worker_id, t.task_type) AS n
        FROM shiftboss.work_totals t LEFT JOIN public.workers w ON w.id = t.worker_id
        WHERE w.status = 'active' OR t.at > shiftboss.now() - interval '5 minutes')
    SELECT l.worker_id, l.task_type, l.completed, l.failed, l.seconds, l.buckets FROM live l WHERE l.n <= p_most
    UNION ALL
    SELECT 'other', 'other', sum(l.completed)::bigint, sum(l.failed)::bigint, sum(l.seconds),
        shiftboss.sum_buckets(l.buckets)
    FROM live l WHERE l.n > p_most HAVING count(*) > 0
$$;

-- The figures of the whole fleet, in one row.
CREATE OR REPLACE FUNCTION shiftboss.fleet_metrics()
RETURNS TABLE (running bigint, stuck bigint, active_workers bigint, stale_workers bigint, led boolean,
    lost_leases bigint,
    stale_reports bigint, leader_changes bigint, suspended bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH counted AS (
        SELECT c.name, sum(c.value)::bigint AS value FROM (
            SELECT name, value FROM shiftboss.counters UNION ALL SELECT name, value FROM shiftboss.counter_tallies) c
                GROUP BY 1)
    SELECT t.running, t.stuck, w.active, w.stale,
        EXISTS (SELECT FROM shiftboss.leases l WHERE l.name = 'leader' AND shiftboss.in_force(l, shiftboss.now())),
        coalesce((SELECT value FROM counted WHERE name = 'lost_leases'), 0),
        coalesce((SELECT value FROM counted WHERE name = 'stale_reports'), 0),
        coalesce((SELECT value FROM counted WHERE name = 'leader_changes'), 0),
        (SELECT count(*) FROM (SELECT FROM public.tasks  -- at most 100,000, to bound the cost of a scrape
            WHERE status = 'Queued' AND hold IN ('sleep', 'event', 'child') LIMIT 100000) s)
    FROM (SELECT count(*) AS running, count(*) FILTER (WHERE generation_started_at < (
              SELECT shiftboss.now() - shiftboss.setting('stuck_after', '10 minutes')::interval)) AS stuck
          FROM public.tasks WHERE status = 'In Progress') t,
         (SELECT count(*) AS active, count(*) FILTER (WHERE coalesce(last_heartbeat, created_at) < (
              SELECT shiftboss.now() - shiftboss.setting('stale_after', '5 minutes')::interval)) AS stale
          FROM public.workers WHERE status = 'active') w
$$;

-- Count the waiting tasks of each queue if there are more than p_most. Returns whether there are.
CREATE OR REPLACE FUNCTION shiftboss.count_queues(p_most int) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    DELETE FROM shiftboss.queue_counts;
    IF NOT EXISTS (SELECT FROM shiftboss.waiting_within(p_most + 1) OFFSET p_most) THEN
        RETURN false;
    END IF;
    INSERT INTO shiftboss.queue_counts (queue, queued)
    SELECT queue, count(*) FROM public.tasks
    WHERE status = 'Queued' AND (hold IS NULL OR hold NOT IN ('sleep', 'event', 'child')) GROUP BY queue;
    RETURN true;
END $$;
