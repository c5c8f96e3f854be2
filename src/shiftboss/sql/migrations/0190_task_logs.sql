-- What handlers log, kept with the task, its attempt and its step.
CREATE TABLE IF NOT EXISTS shiftboss.task_logs (
    task_id uuid NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    attempt int NOT NULL,
    step text,                            -- name#ordinal of the step that logged it
    at timestamptz NOT NULL,              -- by the worker's clock
    level smallint NOT NULL,              -- as in Python: 10 debug, 20 info, 30 warning, 40 error, 50 critical
    logger text NOT NULL,
    message text NOT NULL,
    dropped int NOT NULL DEFAULT 0,       -- of a row that stands for lines which were not kept: how many
    PRIMARY KEY (task_id, id)
);
