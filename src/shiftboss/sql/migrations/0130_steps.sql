-- What a task has done and what it waits for: one row per step, sleep, event or child task. Rows live as long as the task.
CREATE TABLE IF NOT EXISTS shiftboss.steps (
    task_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('step', 'sleep', 'event', 'child')),
    name text NOT NULL,
    ordinal int NOT NULL,                 -- 1 for the first of its kind and name, 2 for the second ...
    state text NOT NULL CHECK (state IN ('waiting', 'done', 'timeout', 'failed', 'cancelled')),
    result jsonb,
    attempt int NOT NULL,
    lease bigint NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    until timestamptz,                    -- a wait ends then, whatever happens
    event_key text,
    event_id uuid,                        -- the event that ended the wait
    child_id uuid,
    PRIMARY KEY (task_id, kind, name, ordinal)
);
CREATE INDEX IF NOT EXISTS steps_until ON shiftboss.steps (until) WHERE state = 'waiting' AND until IS NOT NULL;
CREATE INDEX IF NOT EXISTS steps_event ON shiftboss.steps (event_key) WHERE state = 'waiting' AND event_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS steps_child ON shiftboss.steps (child_id) WHERE state = 'waiting' AND child_id IS NOT NULL;

-- Events that were sent, kept for tasks that begin to wait later. Until swept_at a sweep matches an event against waits that
-- the sender could not see.
CREATE TABLE IF NOT EXISTS shiftboss.sent_events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    key text NOT NULL CHECK (key <> '' AND octet_length(key) <= 1000),
    payload jsonb,
    task_id uuid,                         -- for this task only
    sent_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    expires_at timestamptz NOT NULL,
    seen_at timestamptz,                  -- when a sweep met it for the first time
    swept_at timestamptz
);
CREATE INDEX IF NOT EXISTS sent_events_key ON shiftboss.sent_events (key, sent_at);
CREATE INDEX IF NOT EXISTS sent_events_expires ON shiftboss.sent_events (expires_at);
CREATE INDEX IF NOT EXISTS sent_events_unswept ON shiftboss.sent_events (sent_at) WHERE swept_at IS NULL;

ALTER TABLE public.tasks DROP CONSTRAINT IF EXISTS tasks_hold_check;
ALTER TABLE public.tasks ADD CONSTRAINT tasks_hold_check
    CHECK (hold IN ('dependency', 'limit', 'unusable', 'sleep', 'event', 'child')) NOT VALID;
ALTER TABLE shiftboss.past_attempts DROP CONSTRAINT IF EXISTS past_attempts_outcome_check;
ALTER TABLE shiftboss.past_attempts ADD CONSTRAINT past_attempts_outcome_check CHECK (outcome IN ('complete', 'failed', 'timeout',
    'lost', 'crashed', 'deferred', 'released', 'interrupted', 'suspended', 'cancelled')) NOT VALID;

-- It takes the step to start from now.
DROP FUNCTION IF EXISTS shiftboss.retry(uuid[]);
