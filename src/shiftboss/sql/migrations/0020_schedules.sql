-- The coordinator's tables: sessions of workers that it feeds, why lanes wait, and schedules with their ticks.

-- A session is what a worker proves itself with. It outlives connections and coordinators; only its hash is kept.
CREATE TABLE IF NOT EXISTS shiftboss.sessions (
    worker_id text PRIMARY KEY,
    secret bytea NOT NULL,
    coordinator text,                -- where its stream is open; NULL: nowhere
    created_at timestamptz NOT NULL DEFAULT shiftboss.now()
);

-- What the scheduler found last about lanes that it could not serve; `why` reads it.
CREATE TABLE IF NOT EXISTS shiftboss.lane_reasons (
    lane bigint NOT NULL,
    coordinator text NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL,
    at timestamptz NOT NULL DEFAULT shiftboss.now(),
    PRIMARY KEY (lane, coordinator)
);

CREATE TABLE IF NOT EXISTS shiftboss.schedules (
    name text PRIMARY KEY CONSTRAINT schedules_name_given CHECK (name <> ''),
    cron text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    task jsonb NOT NULL CONSTRAINT schedules_task_typed CHECK (task ->> 'task_type' <> ''),
    missed text NOT NULL DEFAULT 'latest' CONSTRAINT schedules_missed_word CHECK (missed IN ('latest', 'all', 'skip')),
    paused boolean NOT NULL DEFAULT false,
    next_tick timestamptz NOT NULL,
    last_tick timestamptz,
    last_task_id uuid,
    created_at timestamptz NOT NULL DEFAULT shiftboss.now()
);
CREATE INDEX IF NOT EXISTS schedules_due ON shiftboss.schedules (next_tick) WHERE NOT paused;

-- One row per tick that fired: the key is what makes it once.
CREATE TABLE IF NOT EXISTS shiftboss.ticks (
    schedule text NOT NULL,
    tick timestamptz NOT NULL,
    task_id uuid NOT NULL,
    fired_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    PRIMARY KEY (schedule, tick)
);
