-- Count the tasks that have been ready for p_age and the running tasks, for an external autoscaler. Suspended, delayed and paused
-- tasks are not counted. With p_requires, only tasks with these requirements are counted. At most 10,000 tasks per lane are
-- counted, which bounds the cost.
CREATE OR REPLACE FUNCTION shiftboss.work_at_hand(p_queues text[] DEFAULT NULL, p_requires jsonb DEFAULT NULL,
    p_age interval DEFAULT '0') RETURNS TABLE (ready bigint, running bigint) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
    SELECT
        (SELECT coalesce(sum(n.ready), 0)::bigint FROM shiftboss.every_lane() l CROSS JOIN LATERAL (
            SELECT count(*) AS ready FROM (SELECT FROM public.tasks t
                WHERE shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane
                  AND t.status = 'Queued' AND t.hold IS NULL
                  AND coalesce(t.run_at, t.created_at) <= shiftboss.now() - p_age LIMIT 10000) x) n
         WHERE (p_queues IS NULL OR l.queue = ANY (p_queues)) AND (p_requires IS NULL OR l.requires @> p_requires)
           AND NOT EXISTS (SELECT FROM shiftboss.pauses_of(l.queue, l.task_type))),
        (SELECT count(*) FROM public.tasks t WHERE t.status = 'In Progress'
           AND (p_queues IS NULL OR t.queue = ANY (p_queues)) AND (p_requires IS NULL OR t.requires @> p_requires))
$$;
