-- A figure from a worker's report, or NULL if it is not a number: any client may report anything.
CREATE OR REPLACE FUNCTION shiftboss.usage_figure(p_usage jsonb, p_name text) RETURNS real LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN jsonb_typeof(p_usage -> p_name) = 'number'
        THEN least(greatest((p_usage ->> p_name)::numeric, 0), 1000000000)::real END
$$;

-- Record the usage of every active worker from its last heartbeat, and delete samples older than half an hour. Returns
-- the number of samples.
CREATE OR REPLACE FUNCTION shiftboss.sample_workers() RETURNS int LANGUAGE sql SET search_path = pg_catalog, pg_temp
SET jit = off AS $$
    DELETE FROM shiftboss.worker_samples s WHERE s.at < shiftboss.now() - interval '30 minutes';
    WITH noted AS (
        INSERT INTO shiftboss.worker_samples (at, worker_id, memory_mb, cpu_percent, running)
        SELECT shiftboss.now(), w.id, shiftboss.usage_figure(w.resource_usage, 'memory_mb'),
            shiftboss.usage_figure(w.resource_usage, 'cpu_percent'),
                shiftboss.usage_figure(w.resource_usage, 'running')
        FROM public.workers w WHERE w.status = 'active' AND w.last_heartbeat > shiftboss.now() - interval '1 minute'
        ON CONFLICT DO NOTHING RETURNING 1)
    SELECT count(*)::int FROM noted
$$;
