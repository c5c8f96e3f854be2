-- The autoscaler's settings. The caller validates them (see shiftboss.leader.autoscaler).

-- Change the given keys. A null restores the default. Returns the stored settings.
CREATE OR REPLACE FUNCTION shiftboss.set_autoscale(p_queue text, p_settings jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_settings jsonb;
BEGIN
    INSERT INTO shiftboss.autoscale AS a (queue, settings) VALUES (p_queue, jsonb_strip_nulls(p_settings))
    ON CONFLICT (queue) DO UPDATE SET settings = jsonb_strip_nulls(a.settings || p_settings),
        updated_at = shiftboss.now()
    RETURNING a.settings INTO v_settings;
    PERFORM shiftboss.note('autoscale.set', NULL, NULL, NULL, jsonb_build_object('queue', p_queue) || p_settings);
    RETURN v_settings;
END $$;

-- Apply the configuration of a process if it is new: a process that restarts with the same configuration must not undo
-- later changes of an operator. Returns whether anything changed.
CREATE OR REPLACE FUNCTION shiftboss.configure_autoscale(p_queue text, p_settings jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_settings = '{}' OR EXISTS (SELECT FROM shiftboss.autoscale WHERE queue = p_queue AND configured = p_settings)
        THEN
        RETURN false;
    END IF;
    PERFORM shiftboss.set_autoscale(p_queue, p_settings);
    UPDATE shiftboss.autoscale SET configured = p_settings WHERE queue = p_queue;
    RETURN true;
END $$;

-- The figures of the last p_window on which the autoscaler bases its decisions.
CREATE OR REPLACE FUNCTION shiftboss.load(p_queue text, p_window interval DEFAULT '1 minute')
RETURNS TABLE (depth bigint, oldest_seconds double precision, running bigint, workers bigint, slots bigint,
    arrivals double precision, completions double precision, task_seconds double precision)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT q.depth, coalesce(extract(epoch FROM shiftboss.now() - q.oldest), 0)::double precision,
        (SELECT count(*) FROM public.tasks WHERE status = 'In Progress' AND (p_queue IS NULL OR queue = p_queue)),
        w.workers, w.slots,
        (a.waiting + a.running + d.arrived) / extract(epoch FROM p_window)::double precision,
        d.ended / extract(epoch FROM p_window)::double precision, coalesce(d.mean, 0)
    FROM (SELECT count(*) AS depth, min(coalesce(run_at, created_at)) AS oldest FROM public.tasks
          WHERE status = 'Queued' AND hold IS NULL AND coalesce(run_at, created_at) <= shiftboss.now()
            AND (p_queue IS NULL OR queue = p_queue)) q,
        (SELECT count(*) AS workers, coalesce(sum(CASE jsonb_typeof(capabilities -> 'max_concurrent_tasks')
             WHEN 'number' THEN least((capabilities ->> 'max_concurrent_tasks')::numeric, 10000)::int END), 0) AS slots
         FROM public.workers WHERE status = 'active' AND NOT draining
           AND (queues IS NULL OR p_queue IS NULL OR p_queue = ANY (queues))) w,
        -- Three indexes together cover recent tasks; no single index does.
        (SELECT (SELECT count(*) FROM public.tasks WHERE status = 'Queued' AND created_at > shiftboss.now() - p_window
                 AND (p_queue IS NULL OR queue = p_queue)) AS waiting,
                (SELECT count(*) FROM public.tasks WHERE status = 'In Progress'
                    AND created_at > shiftboss.now() - p_window
                 AND (p_queue IS NULL OR queue = p_queue)) AS running) a,
        (SELECT count(*) AS ended, count(*) FILTER (WHERE created_at > shiftboss.now() - p_window) AS arrived,
             avg(greatest(extract(epoch FROM generation_processed_at - generation_started_at),
                 0))::double precision AS mean
         FROM public.tasks WHERE status IN ('Complete', 'Failed', 'Cancelled')
           AND generation_processed_at > shiftboss.now() - p_window AND (p_queue IS NULL OR queue = p_queue)) d
$$;
