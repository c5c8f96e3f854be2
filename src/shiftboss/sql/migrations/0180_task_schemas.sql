-- The JSON Schema of each task type's arguments, as workers publish it when they register.
CREATE TABLE IF NOT EXISTS shiftboss.task_schemas (
    task_type text PRIMARY KEY,
    schema json NOT NULL,                 -- not jsonb: the arguments keep their order
    version text,                         -- of the handler that published it
    worker_id text NOT NULL,
    published_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    seen_at timestamptz NOT NULL DEFAULT shiftboss.now()
);
