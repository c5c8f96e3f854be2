-- A task in a worker's hands: the one shape that every function returns which hands out tasks. Python has it as
-- shiftboss.model.task.Claimed, the protocol as shiftboss.v1.Assignment.
DO $$ BEGIN
    IF to_regtype('shiftboss.claimed_task') IS NULL THEN
        CREATE TYPE shiftboss.claimed_task AS (id uuid, lease bigint, task_type text, params jsonb, attempt int,
            max_attempts smallint, queue text, priority smallint, tenant text, timeout interval, deadline timestamptz,
            created_at timestamptz, ready_at timestamptz, started_at timestamptz, lane bigint, run_id uuid,
            metadata jsonb, crashes smallint);
    END IF;
END $$;
