-- What an autoscaler outside needs to know: tasks that have been ready for p_age, and tasks that run. Suspended, delayed and
-- paused ones are no work for a new worker. p_requires: only tasks that require all of this. Of each lane at most 10,000 are
-- counted, so that a backlog of millions costs no more.
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
