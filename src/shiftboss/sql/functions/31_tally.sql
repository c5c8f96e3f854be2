-- Count finished tasks: see the tables in migration 0090. shiftboss.complete counts its batch itself and marks the
-- rows with lease_expires_at = generation_processed_at. A trigger counts all other ends row by row, including those by
-- plain UPDATEs. Trigger functions are SECURITY DEFINER: a role that may change a task needs no privileges on the
-- counters.

CREATE OR REPLACE FUNCTION shiftboss.tally_step(p_at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.date_bin('6 hours', p_at, '2000-01-01 00:00+00');
END;

-- The bounds of every histogram of durations, which are BUCKETS in Python.
CREATE OR REPLACE FUNCTION shiftboss.time_bucket(p_seconds double precision) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.width_bucket(p_seconds,
        '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300}'::pg_catalog.float8[])::pg_catalog.int2;
END;

CREATE OR REPLACE FUNCTION shiftboss.seconds_between(p_from timestamptz, p_to timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT greatest(pg_catalog.date_part('epoch', p_to - p_from), 0);
END;

-- Count one task in its new state (p_sign = 1) or subtract its old state (-1).
CREATE OR REPLACE FUNCTION shiftboss.tally(t public.tasks, p_sign int, p_failed int) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_ended timestamptz := CASE WHEN isfinite(t.generation_processed_at) THEN t.generation_processed_at
        ELSE shiftboss.now() END;
    v_seconds double precision := shiftboss.seconds_between(t.generation_started_at, v_ended);
BEGIN
    INSERT INTO shiftboss.tallies (step, worker_id, task_type, status, bucket, in_table, ended, failed, seconds,
        least, most)
    VALUES (shiftboss.tally_step(v_ended), coalesce(t.worker_id, t.last_worker_id), t.task_type, t.status,
        coalesce(shiftboss.time_bucket(v_seconds), -1), p_sign, p_sign, p_failed, coalesce(p_sign * v_seconds, 0),
            v_seconds, v_seconds);
END $$;

CREATE OR REPLACE FUNCTION shiftboss.tally_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.status NOT IN ('Queued', 'In Progress') THEN
        PERFORM shiftboss.tally(OLD, -1, 0);
    END IF;
    IF NEW.status NOT IN ('Queued', 'In Progress') THEN
        -- shiftboss.fail marks its rows too: their attempts are counted with the row in past_attempts.
        PERFORM shiftboss.tally(NEW, 1, CASE WHEN TG_OP = 'UPDATE' AND OLD.status = 'In Progress'
            AND NEW.status = 'Failed'
            AND NEW.lease_expires_at IS DISTINCT FROM NEW.generation_processed_at THEN 1 ELSE 0 END);
    END IF;
    RETURN NULL;
END $$;

-- Deleted tasks are no longer in the table but still count as ended.
CREATE OR REPLACE FUNCTION shiftboss.tally_deleted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss.tallies (status, in_table)
    SELECT status, -count(*) FROM gone WHERE status NOT IN ('Queued', 'In Progress') GROUP BY status;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.tally_truncated() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss.tallies (status, in_table) SELECT status, -in_table FROM shiftboss.finished_totals;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.tally_attempts() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss.tallies (step, worker_id, status, failed)
    SELECT shiftboss.tally_step(ended_at), worker_id, 'Failed', count(*) FROM made
    WHERE outcome IN ('failed', 'timeout', 'lost', 'crashed') AND worker_id IS NOT NULL GROUP BY 1, 2;
    RETURN NULL;
END $$;

-- The duration at a quantile if it lies in this bucket of p_count tasks (p_before of p_total are in lower buckets),
-- otherwise NULL. Assumes that durations are spread evenly between the smallest and the largest.
CREATE OR REPLACE FUNCTION shiftboss.rank_time(p_quantile double precision, p_total numeric, p_before numeric,
    p_count numeric,
    p_least double precision, p_most double precision) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN p_quantile * (p_total - 1) >= p_before AND p_quantile * (p_total - 1) < p_before + p_count
        THEN p_least + (p_most - p_least) * least(1, (p_quantile * (p_total - 1) - p_before) / greatest(p_count - 1,
            1)) END;
END;

-- Add the tallies to the totals and return their number. The leader calls this every few seconds, so there are never
-- many.
CREATE OR REPLACE FUNCTION shiftboss.fold_tallies() RETURNS bigint LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM shiftboss.tallies RETURNING *
    ), tasks AS (
        INSERT INTO shiftboss.task_totals AS x (status, in_table)
        SELECT status, sum(in_table) FROM gone WHERE in_table <> 0 GROUP BY status ORDER BY status
        ON CONFLICT (status) DO UPDATE SET in_table = x.in_table + excluded.in_table
    ), workers AS (
        INSERT INTO shiftboss.worker_totals AS x (step, worker_id, completed, failed, seconds)
        SELECT step, worker_id, coalesce(sum(ended) FILTER (WHERE status = 'Complete'), 0), sum(failed),
            coalesce(sum(seconds) FILTER (WHERE status = 'Complete'), 0)
        FROM gone WHERE step IS NOT NULL AND worker_id IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (step, worker_id) DO UPDATE SET completed = x.completed + excluded.completed,
            failed = x.failed + excluded.failed, seconds = x.seconds + excluded.seconds
    ), types AS (
        INSERT INTO shiftboss.type_totals AS x (step, task_type, status, bucket, ended, seconds, least, most)
        SELECT step, task_type, status, bucket, sum(ended), sum(seconds), min(least), max(most)
        FROM gone WHERE ended <> 0 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (step, task_type, status, bucket) DO UPDATE SET ended = x.ended + excluded.ended,
            seconds = x.seconds + excluded.seconds, least = least(x.least, excluded.least),
                most = greatest(x.most, excluded.most)
    )
    SELECT count(*) FROM gone
$$;

-- Count everything again from `tasks` and `past_attempts`, after rows were added or removed without triggers. It
-- blocks no writer, only fold_tallies(): one statement, and so one snapshot, reads the tables (`found`) and the
-- recorded totals, and adds the difference. Tasks that ended and were deleted since still count as ended.
CREATE OR REPLACE FUNCTION shiftboss.retally() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET jit = off AS $$
BEGIN
    LOCK TABLE shiftboss.task_totals, shiftboss.worker_totals, shiftboss.type_totals IN SHARE ROW EXCLUSIVE MODE;
    WITH found AS MATERIALIZED (
        SELECT shiftboss.tally_step(at) AS step, worker, task_type, status,
            coalesce(shiftboss.time_bucket(s), -1) AS bucket,
            count(*) AS ended, coalesce(sum(s), 0) AS seconds, min(s) AS least, max(s) AS most
        FROM (SELECT coalesce(worker_id, last_worker_id) AS worker, task_type, status,
                  CASE WHEN isfinite(generation_processed_at) THEN generation_processed_at ELSE updated_at END AS at,
                  shiftboss.seconds_between(generation_started_at, generation_processed_at) AS s
              FROM public.tasks WHERE status NOT IN ('Queued', 'In Progress')) t GROUP BY 1, 2, 3, 4, 5
    ), by_status AS (
        INSERT INTO shiftboss.task_totals AS x (status, in_table)
        SELECT status, sum(n) FROM (
            SELECT status, ended AS n FROM found
            UNION ALL SELECT status, -in_table FROM shiftboss.task_totals
            UNION ALL SELECT status, -in_table FROM shiftboss.tallies) d GROUP BY status HAVING sum(n) <> 0
        ON CONFLICT (status) DO UPDATE SET in_table = x.in_table + excluded.in_table
    ), by_worker AS (
        INSERT INTO shiftboss.worker_totals AS x (step, worker_id, completed, failed, seconds)
        SELECT step, worker, greatest(sum(completed), 0), greatest(sum(failed), 0), CASE WHEN sum(completed) > 0
            THEN sum(seconds) ELSE 0 END
        FROM (SELECT step, worker, ended AS completed, 0 AS failed, seconds FROM found WHERE status = 'Complete'
              UNION ALL
              SELECT shiftboss.tally_step(ended_at), worker_id, 0, 1, 0 FROM shiftboss.past_attempts
              WHERE outcome IN ('failed', 'timeout', 'lost', 'crashed')
              UNION ALL SELECT step, worker_id, -completed, -failed, -seconds FROM shiftboss.worker_totals
              UNION ALL SELECT step, worker_id, CASE status WHEN 'Complete' THEN -ended ELSE 0 END, -failed,
                  CASE status WHEN 'Complete' THEN -seconds ELSE 0 END FROM shiftboss.tallies) d
        WHERE step IS NOT NULL AND worker IS NOT NULL GROUP BY 1, 2 HAVING sum(completed) > 0 OR sum(failed) > 0
        ON CONFLICT (step, worker_id) DO UPDATE SET completed = x.completed + excluded.completed,
            failed = x.failed + excluded.failed, seconds = x.seconds + excluded.seconds
    )
    INSERT INTO shiftboss.type_totals AS x (step, task_type, status, bucket, ended, seconds, least, most)
    SELECT step, task_type, status, bucket, sum(ended), sum(seconds), min(least), max(most)
    FROM (SELECT step, task_type, status, bucket, ended, seconds, least, most FROM found
          UNION ALL
          SELECT step, task_type, status, bucket, -ended, -seconds, NULL, NULL FROM shiftboss.type_totals
          UNION ALL
          SELECT step, task_type, status, bucket, -ended, -seconds, NULL, NULL FROM shiftboss.tallies
              WHERE ended <> 0) d
    GROUP BY 1, 2, 3, 4 HAVING sum(ended) > 0
    ON CONFLICT (step, task_type, status, bucket) DO UPDATE SET ended = x.ended + excluded.ended,
        seconds = x.seconds + excluded.seconds, least = least(x.least, excluded.least),
            most = greatest(x.most, excluded.most);
END $$;

-- Count the tasks that ended before the triggers existed, once. `shiftboss db migrate` calls this after its commit.
CREATE OR REPLACE FUNCTION shiftboss.count_history() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM shiftboss.settings WHERE key = 'history' AND value = 'uncounted';
    IF FOUND THEN
        PERFORM shiftboss.retally();
    END IF;
END $$;

-- tally_updated is limited to UPDATE OF status: PostgreSQL parses the condition of a trigger again for every statement
-- that may fire it.
CREATE OR REPLACE TRIGGER tally_inserted AFTER INSERT ON public.tasks FOR EACH ROW
    WHEN (NEW.status NOT IN ('Queued', 'In Progress')) EXECUTE FUNCTION shiftboss.tally_change();
CREATE OR REPLACE TRIGGER tally_deleted AFTER DELETE ON public.tasks REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION shiftboss.tally_deleted();
CREATE OR REPLACE TRIGGER tally_truncated AFTER TRUNCATE ON public.tasks EXECUTE FUNCTION shiftboss.tally_truncated();
CREATE OR REPLACE TRIGGER tally_attempts AFTER INSERT ON shiftboss.past_attempts REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT EXECUTE FUNCTION shiftboss.tally_attempts();
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'public.tasks'::regclass AND tgname = 'tally_updated') THEN
        INSERT INTO shiftboss.settings (key, value) SELECT 'history', 'uncounted'
        WHERE EXISTS (SELECT FROM public.tasks) ON CONFLICT DO NOTHING;
    END IF;
END $$;
CREATE OR REPLACE TRIGGER tally_updated AFTER UPDATE OF status ON public.tasks FOR EACH ROW
    WHEN (NEW.status <> OLD.status
        AND (OLD.status NOT IN ('Queued', 'In Progress') OR NEW.status IN ('Failed', 'Cancelled')
        OR NEW.status = 'Complete' AND NEW.lease_expires_at IS DISTINCT FROM NEW.generation_processed_at))
    EXECUTE FUNCTION shiftboss.tally_change();
