-- Weights of tenants, and ageing of priorities.

-- Set the weight of a tenant relative to other waiting tenants: 2 gives twice the share of the default, 1. NULL
-- restores the default. Returns whether it changed.
CREATE OR REPLACE FUNCTION shiftboss.set_tenant_weight(p_name text, p_weight double precision) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_weight IS NULL THEN
        DELETE FROM shiftboss.tenants WHERE name = p_name;
    ELSE
        INSERT INTO shiftboss.tenants AS t (name, weight) VALUES (p_name, p_weight)
        ON CONFLICT (name) DO UPDATE SET weight = excluded.weight WHERE t.weight <> excluded.weight;
    END IF;
    RETURN FOUND;
END $$;

-- Raise the priority of waiting tasks by one after each p_every. NULL, the default, turns this off.
CREATE OR REPLACE FUNCTION shiftboss.set_ageing(p_every interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_every < interval '1 second' THEN
        RAISE EXCEPTION 'the ageing interval % is shorter than a second', p_every
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'For example: SELECT shiftboss.set_ageing(''10 minutes'')';
    ELSIF p_every IS NULL THEN
        DELETE FROM shiftboss.settings WHERE key = 'ageing';
    ELSE
        INSERT INTO shiftboss.settings (key, value) VALUES ('ageing', p_every::text)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.ageing() RETURNS interval LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$ SELECT value::interval FROM shiftboss.settings WHERE key = 'ageing' $$;

-- The points that a task that became ready at p_ready has gained by p_now. Priorities end at 100.
CREATE OR REPLACE FUNCTION shiftboss.gained(p_priority smallint, p_ready timestamptz, p_now timestamptz,
    p_every interval)
RETURNS int LANGUAGE sql IMMUTABLE RETURN
    least(floor(extract(epoch FROM p_now - p_ready) / extract(epoch FROM p_every)), 100 - p_priority)::int;

-- The variant of shiftboss.claim for ageing priorities. Reads the first task of each lane with one index probe. If it
-- has gained points, the tasks of the lane that have waited as long are served at that priority, and the others at
-- their own.
CREATE OR REPLACE FUNCTION shiftboss.claim_aged(w public.workers, p_limit int, p_mark_lanes bigint[],
    p_mark_times timestamptz[], p_lease interval, p_every interval)
RETURNS SETOF shiftboss.claimed_task
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_ids uuid[] := '{}';
    v_some uuid[];
    level record;
    narrow record;
    v_locked boolean := false;
BEGIN
    FOR level IN
        WITH open AS (
            SELECT DISTINCT ON (l.lane) l.*, coalesce(m.mark, '-infinity') AS mark,
                EXISTS (SELECT FROM shiftboss.limits_of(l.queue, l.task_type)) AS limited
            FROM shiftboss.lanes l LEFT JOIN unnest(p_mark_lanes, p_mark_times) m (lane, mark) ON m.lane = l.lane
            WHERE shiftboss.capable(w, l.queue, l.task_type, l.requires)
              AND NOT EXISTS (SELECT FROM shiftboss.pauses_of(l.queue, l.task_type))
        ), aged AS (
            SELECT o.*, h.ready_at, shiftboss.gained(o.priority, h.ready_at, v_now, p_every) AS points
            FROM open o CROSS JOIN LATERAL (
                SELECT coalesce(t.run_at, t.created_at) AS ready_at FROM public.tasks t
                WHERE shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = o.lane
                  AND t.status = 'Queued' AND t.hold IS NULL
                  AND coalesce(t.run_at, t.created_at) >= o.mark
                      AND coalesce(t.run_at, t.created_at) <= v_now - p_every
                ORDER BY coalesce(t.run_at, t.created_at), t.id LIMIT 1) h
            WHERE o.priority < 100
        )
        SELECT a.priority + a.points AS priority, ARRAY[a.lane] AS lanes, ARRAY[coalesce(a.tenant, '')] AS tenants,
            ARRAY[a.mark] AS marks, CASE WHEN a.limited THEN ARRAY[a.lane] END AS narrow, a.ready_at,
            v_now - a.points * p_every AS horizon
        FROM aged a
        UNION ALL
        SELECT o.priority, array_agg(o.lane) FILTER (WHERE NOT o.limited),
            array_agg(coalesce(o.tenant, '')) FILTER (WHERE NOT o.limited),
                array_agg(o.mark) FILTER (WHERE NOT o.limited),
            array_agg(o.lane) FILTER (WHERE o.limited), NULL, v_now
        FROM open o GROUP BY o.priority
        ORDER BY 1 DESC, 6 NULLS LAST
    LOOP
        IF level.narrow IS NOT NULL THEN
            IF NOT v_locked THEN  -- lock all at once: locking level by level could deadlock
                PERFORM FROM shiftboss.limits x WHERE EXISTS (SELECT FROM shiftboss.lanes l
                    WHERE ((x.kind = 'queue' AND x.name = l.queue) OR (x.kind = 'task_type' AND x.name = l.task_type))
                    AND shiftboss.capable(w, l.queue, l.task_type, l.requires))
                    ORDER BY x.kind, x.name FOR UPDATE;
                v_locked := true;
            END IF;
            FOR narrow IN SELECT DISTINCT ON (l.lane) l.lane, l.queue, l.task_type,
                    CASE WHEN level.ready_at IS NULL THEN p_limit
                        ELSE (SELECT count(*) FROM (SELECT FROM public.tasks t
                        WHERE shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane
                          AND t.status = 'Queued' AND t.hold IS NULL
                              AND coalesce(t.run_at, t.created_at) <= level.horizon
                        ORDER BY coalesce(t.run_at, t.created_at), t.id LIMIT p_limit) o)::int END AS most
                FROM shiftboss.lanes l WHERE l.lane = ANY (level.narrow)
            LOOP
                EXIT WHEN cardinality(v_ids) >= p_limit;
                v_some := shiftboss.pick_limited(narrow.lane, narrow.queue, narrow.task_type,
                    least(p_limit - cardinality(v_ids), narrow.most), shiftboss.now());
                RETURN QUERY SELECT * FROM shiftboss.take(v_some, w.id, p_lease);
                v_ids := v_ids || v_some;
            END LOOP;
        END IF;
        EXIT WHEN cardinality(v_ids) >= p_limit;
        CONTINUE WHEN level.lanes IS NULL OR (level.ready_at IS NOT NULL AND level.narrow IS NOT NULL);
        v_some := shiftboss.pick(level.lanes, level.tenants, level.marks, p_limit - cardinality(v_ids), level.horizon);
        IF v_some IS NOT NULL THEN
            RETURN QUERY SELECT * FROM shiftboss.take(v_some, w.id, p_lease);
            v_ids := v_ids || v_some;
        END IF;
        EXIT WHEN cardinality(v_ids) >= p_limit;
    END LOOP;
END $$;
