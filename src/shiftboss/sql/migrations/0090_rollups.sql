-- Figures of finished tasks, kept as tasks finish, so that no view reads the history.

-- What changed, appended in the transaction that changed it: nobody waits for a counter that somebody else holds.
-- shiftboss.fold_tallies() adds these rows to the tables below; a view reads both.
CREATE TABLE IF NOT EXISTS shiftboss.tallies (
    step timestamptz,                      -- the quarter of a day in which the task ended
    worker_id text,
    task_type text,
    status text NOT NULL,
    bucket smallint NOT NULL DEFAULT -1,   -- of the processing time: shiftboss.time_bucket(); -1: it never ran
    in_table bigint NOT NULL DEFAULT 0,    -- rows of this status in `tasks`, more or fewer than before
    ended bigint NOT NULL DEFAULT 0,       -- tasks that ended so
    failed bigint NOT NULL DEFAULT 0,      -- attempts that failed
    seconds double precision NOT NULL DEFAULT 0,
    least double precision,
    most double precision
);
ALTER TABLE shiftboss.tallies SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE IF NOT EXISTS shiftboss.task_totals (
    status text PRIMARY KEY,
    in_table bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS shiftboss.worker_totals (
    step timestamptz NOT NULL,
    worker_id text NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (step, worker_id)
);

CREATE TABLE IF NOT EXISTS shiftboss.type_totals (
    step timestamptz NOT NULL,
    task_type text NOT NULL,
    status text NOT NULL,
    bucket smallint NOT NULL,
    ended bigint NOT NULL,
    seconds double precision NOT NULL,
    least double precision,
    most double precision,
    PRIMARY KEY (step, task_type, status, bucket)
);

-- Only running tasks are looked for by worker: finished ones leave the index. BETWEEN, as PostgreSQL before 18 would take
-- `status = 'In Progress'` for granted after such a predicate, and could then use no other column of the index.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('public.idx_tasks_status_worker') AND indpred IS NULL) THEN
        DROP INDEX public.idx_tasks_status_worker;
    END IF;
END $$;
CREATE INDEX IF NOT EXISTS idx_tasks_status_worker ON public.tasks (status, worker_id)
    WHERE status BETWEEN 'In Progress' AND 'In Progress';
