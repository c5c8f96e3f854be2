-- Argument schemas of task types. Workers publish them; all clients except plain SQL check new tasks against them.

-- Whether a schema of version p_new may replace one of version p_old. Numeric versions (3, or 1.10) never decrease, so
-- that a restarted worker of an older release does not overwrite a newer schema. For all others, the last one wins.
CREATE OR REPLACE FUNCTION shiftboss.supersedes(p_new text, p_old text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_new ~ '^\d{1,9}(\.\d{1,9})*$' AND p_old ~ '^\d{1,9}(\.\d{1,9})*$'
        THEN string_to_array(p_new, '.')::int[] >= string_to_array(p_old, '.')::int[] ELSE true END
$$;

-- Publish the schemas of a worker, one object per task type: name, schema, version. Writes only changes, and deletes
-- types that no worker has published for a month. Returns the types whose schema changed.
CREATE OR REPLACE FUNCTION shiftboss.publish_schemas(p_worker_id text, p_schemas json) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_changed text[];
BEGIN
    WITH given AS (
        SELECT x.name, x.schema, x.version
            FROM json_to_recordset(p_schemas) AS x (name text, schema json, version text)
        ORDER BY x.name
    ), written AS (
        INSERT INTO shiftboss.task_schemas AS s (task_type, schema, version, worker_id, published_at, seen_at)
        SELECT g.name, g.schema, g.version, p_worker_id, v_now, v_now FROM given g
        WHERE NOT EXISTS (SELECT FROM shiftboss.task_schemas k WHERE k.task_type = g.name
            AND k.schema::text = g.schema::text AND k.version IS NOT DISTINCT FROM g.version
            AND k.seen_at > v_now - interval '1 day')
        ON CONFLICT (task_type) DO UPDATE SET schema = excluded.schema, version = excluded.version,
            worker_id = excluded.worker_id, seen_at = excluded.seen_at,
            published_at = CASE WHEN s.schema::text = excluded.schema::text THEN s.published_at
                ELSE excluded.published_at END
        WHERE shiftboss.supersedes(excluded.version, s.version)
        RETURNING s.task_type, s.published_at = v_now AS changed
    )
    SELECT coalesce(array_agg(task_type ORDER BY task_type) FILTER (WHERE changed), '{}') INTO v_changed FROM written;
    DELETE FROM shiftboss.task_schemas s WHERE s.seen_at < v_now - interval '30 days'
        AND NOT EXISTS (SELECT FROM public.workers w WHERE w.status = 'active'
            AND w.capabilities -> 'task_types' ? s.task_type);
    RETURN v_changed;
END $$;

-- The schemas of these task types, and whether a worker serves them. A type may be known without a schema.
CREATE OR REPLACE FUNCTION shiftboss.known_types(p_types text[])
RETURNS TABLE (task_type text, schema json, known boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.name, s.schema, s.task_type IS NOT NULL OR EXISTS (
        SELECT FROM public.workers w WHERE w.status = 'active' AND w.capabilities -> 'task_types' ? t.name)
    FROM unnest(p_types) t (name) LEFT JOIN shiftboss.task_schemas s ON s.task_type = t.name
$$;
