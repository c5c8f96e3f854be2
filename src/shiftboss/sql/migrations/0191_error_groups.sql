-- Failures with one cause form one group: see functions/32_errors.sql.
ALTER TABLE shiftboss.past_attempts ADD COLUMN IF NOT EXISTS error_group text;
CREATE INDEX IF NOT EXISTS past_attempts_group ON shiftboss.past_attempts (error_group, ended_at) WHERE error_group IS NOT NULL;

-- Failures that are not counted yet, appended in the transaction that failed them.
CREATE TABLE IF NOT EXISTS shiftboss.error_tallies (
    error_group text NOT NULL,
    task_id uuid NOT NULL,
    worker_id text,
    outcome text NOT NULL,
    error text,
    at timestamptz NOT NULL
);

CREATE TABLE IF NOT EXISTS shiftboss.error_groups (
    id text PRIMARY KEY,
    error_type text NOT NULL,             -- the exception, or how the attempt ended: timeout, lost, crashed
    place text,                           -- file and function that raised it
    message text,                         -- of the latest
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    count bigint NOT NULL,                -- attempts that failed so
    task_types text[] NOT NULL DEFAULT '{}',
    versions text[] NOT NULL DEFAULT '{}',
    workers text[] NOT NULL DEFAULT '{}', -- the latest 20 of each
    task_id uuid                          -- the latest task
);
CREATE INDEX IF NOT EXISTS error_groups_seen ON shiftboss.error_groups (last_seen);
