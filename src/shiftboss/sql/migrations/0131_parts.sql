-- What tasks emit while they run, in order. A row with restart says which parts before it a new run takes back.
CREATE TABLE IF NOT EXISTS shiftboss.parts (
    task_id uuid NOT NULL,
    seq int NOT NULL,
    lease bigint NOT NULL,
    attempt int NOT NULL,
    step text,                            -- name#ordinal of the step that emitted it
    restart boolean NOT NULL DEFAULT false,
    part jsonb,
    at timestamptz NOT NULL,
    PRIMARY KEY (task_id, seq)
);
