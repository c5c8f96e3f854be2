-- Streams: the parts that a task emits are appended under its lease and numbered without gaps. The row lock of the
-- task serialises writers, so that a reader that has seen part n has seen all earlier ones.

DROP FUNCTION IF EXISTS shiftboss.append_parts(uuid[], bigint[], text[], jsonb[]);

-- Append parts of many tasks, in the given order for each task. Before the first part of a new run (another attempt,
-- or the same one after a wait), a row with `restart` lists what the reader must discard: parts emitted outside of
-- steps, which run again, and parts of steps whose result was not stored. p_places numbers the parts of each lease
-- from 1, which makes repeated calls harmless. Returns the ids whose lease was stale.
CREATE OR REPLACE FUNCTION shiftboss.append_parts(p_ids uuid[], p_leases bigint[], p_steps text[], p_parts jsonb[],
    p_places int[] DEFAULT NULL) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_held uuid[];
    v_most int := shiftboss.setting('max_parts', '100000')::int;
    v_full uuid;
BEGIN
    v_held := ARRAY(SELECT t.id FROM public.tasks t
        JOIN (SELECT DISTINCT id, lease FROM unnest(p_ids, p_leases) u (id, lease)) u
        ON t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease WHERE t.status COLLATE "C" = 'In Progress' ORDER BY u.id
            FOR NO KEY UPDATE OF t);
    INSERT INTO shiftboss.parts (task_id, seq, lease, attempt, restart, part, at)
    SELECT t.id, l.seq + 1, t.lease, t.attempts + 1, true, jsonb_build_object('attempt', t.attempts + 1, 'discard', (
            SELECT coalesce(jsonb_agg(p.seq ORDER BY p.seq), '[]') FROM shiftboss.parts p
            WHERE p.task_id = t.id AND NOT p.restart AND NOT EXISTS (SELECT FROM shiftboss.steps s
                WHERE s.task_id = t.id AND s.kind = 'step' AND s.ordinal > 0 AND s.name || '#'
                    || s.ordinal = p.step))), v_now
    FROM public.tasks t CROSS JOIN LATERAL (SELECT p.seq, p.lease FROM shiftboss.parts p WHERE p.task_id = t.id
        ORDER BY p.seq DESC LIMIT 1) l
    WHERE t.id = ANY (v_held) AND l.lease <> t.lease;
    SELECT t INTO v_full FROM unnest(v_held) t
        WHERE coalesce((SELECT max(p.seq) FROM shiftboss.parts p WHERE p.task_id = t), 0)
        + (SELECT count(*) FROM unnest(p_ids) i WHERE i = t) > v_most LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'task % has emitted the maximum of % parts', v_full, v_most
            USING ERRCODE = 'program_limit_exceeded',
            HINT = 'Emit larger parts, less often.';
    END IF;
    INSERT INTO shiftboss.parts (task_id, seq, lease, attempt, step, part, at, place)
    SELECT u.id, coalesce(l.seq, 0) + row_number() OVER (PARTITION BY u.id ORDER BY u.n), u.lease, t.attempts + 1,
        u.step, u.part,
        v_now, u.place
    FROM unnest(p_ids, p_leases, p_steps, p_parts, p_places) WITH ORDINALITY u (id, lease, step, part, place, n)
    JOIN public.tasks t ON t.id = ANY (ARRAY[u.id])
    LEFT JOIN LATERAL (SELECT p.seq, p.place FROM shiftboss.parts p WHERE p.task_id = u.id ORDER BY p.seq DESC
        LIMIT 1) l ON true
    WHERE u.id = ANY (v_held) AND t.lease = u.lease AND coalesce(u.place > l.place, true);
    RETURN CASE WHEN cardinality(v_held) = (SELECT count(DISTINCT i) FROM unnest(p_ids) i) THEN '{}'
        ELSE shiftboss.stale(p_ids, p_leases, 'In Progress', NULL) END;
END $$;

-- Return up to p_limit parts with a seq above p_after, in order.
CREATE OR REPLACE FUNCTION shiftboss.read_parts(p_id uuid, p_after int DEFAULT 0, p_limit int DEFAULT 500)
RETURNS TABLE (seq int, attempt int, restart boolean, part jsonb, at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.seq, p.attempt, p.restart, p.part, p.at FROM shiftboss.parts p WHERE p.task_id = p_id AND p.seq > p_after
    ORDER BY p.seq LIMIT p_limit
$$;
