-- Logs of tasks. No row of `tasks` is locked, so that a task that logs a lot delays neither its report nor any claim.

-- Append lines in the given order, except those of deleted tasks. The logs of the tasks in p_ended, which have ended
-- an attempt or logged much, are trimmed to their maximum size.
CREATE OR REPLACE FUNCTION shiftboss.append_logs(p_ids uuid[], p_attempts int[], p_steps text[], p_at timestamptz[],
    p_levels int[], p_loggers text[], p_messages text[], p_dropped int[], p_ended uuid[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
BEGIN
    INSERT INTO shiftboss.task_logs (task_id, attempt, step, at, level, logger, message, dropped)
    SELECT u.id, u.attempt, u.step, u.at, u.level, u.logger, u.message, u.dropped
    FROM unnest(p_ids, p_attempts, p_steps, p_at, p_levels, p_loggers, p_messages, p_dropped)
        WITH ORDINALITY u (id, attempt, step, at, level, logger, message, dropped, n)
    WHERE EXISTS (SELECT FROM public.tasks t WHERE t.id = u.id)
    ORDER BY u.n;
    PERFORM shiftboss.trim_logs(i) FROM unnest(p_ended) i;
END $$;

-- Keep the latest lines of a task: max_log_lines in shiftboss.settings, by default 5000. One row says how many were
-- deleted.
CREATE OR REPLACE FUNCTION shiftboss.trim_logs(p_id uuid) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_most int := greatest(shiftboss.setting('max_log_lines', '5000')::int, 1);
    v_cut bigint;
BEGIN
    SELECT l.id INTO v_cut FROM shiftboss.task_logs l WHERE l.task_id = p_id ORDER BY l.id DESC OFFSET v_most LIMIT 1;
    IF v_cut IS NULL THEN
        RETURN;
    END IF;
    WITH gone AS (DELETE FROM shiftboss.task_logs l WHERE l.task_id = p_id AND l.id <= v_cut RETURNING l.*),
         last AS (SELECT g.* FROM gone g ORDER BY g.id DESC LIMIT 1),
         lines AS (SELECT sum(greatest(g.dropped, 1))::int AS n FROM gone g)
    INSERT INTO shiftboss.task_logs (task_id, id, attempt, at, level, logger, message, dropped) OVERRIDING SYSTEM VALUE
    SELECT l.task_id, l.id, l.attempt, l.at, 30, 'shiftboss', n.n || ' earlier lines were dropped', n.n
    FROM last l, lines n;
END $$;

-- Return up to p_limit lines with an id above p_after and at least this level, in order.
CREATE OR REPLACE FUNCTION shiftboss.read_logs(p_id uuid, p_after bigint DEFAULT 0, p_limit int DEFAULT 500,
    p_level int DEFAULT 0)
RETURNS TABLE (id bigint, attempt int, step text, at timestamptz, level int, logger text, message text, dropped int)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT l.id, l.attempt, l.step, l.at, l.level::int, l.logger, l.message, l.dropped FROM shiftboss.task_logs l
    WHERE l.task_id = p_id AND l.id > p_after AND l.level >= p_level ORDER BY l.id LIMIT p_limit
$$;
