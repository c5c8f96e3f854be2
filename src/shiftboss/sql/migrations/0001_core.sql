-- The queue and the registry: one row per task, one row per worker, and the small tables that steer them.
-- Safe on an empty database and on one that already holds older `tasks` and `workers` tables with rows.

CREATE SCHEMA IF NOT EXISTS shiftboss;

-- The one clock. Tests move it with `SET shiftboss.now = '...'`; nobody else does.
CREATE OR REPLACE FUNCTION shiftboss.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(nullif(current_setting('shiftboss.now', true), '')::timestamptz, clock_timestamp());
END $$;

CREATE TABLE IF NOT EXISTS public.tasks (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    status text NOT NULL DEFAULT 'Queued',
    task_type text NOT NULL,
    params jsonb NOT NULL DEFAULT '{}',
    attempts int NOT NULL DEFAULT 0,
    worker_id text,
    generation_started_at timestamptz,
    generation_processed_at timestamptz,
    error_message text,
    result_data jsonb,
    created_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    updated_at timestamptz NOT NULL DEFAULT shiftboss.now()
);

CREATE TABLE IF NOT EXISTS public.workers (
    id text PRIMARY KEY,
    instance_type text NOT NULL DEFAULT 'external',
    status text NOT NULL DEFAULT 'active',
    last_heartbeat timestamptz,
    metadata jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT shiftboss.now()
);

-- An older table may lack documented columns, defaults or values: bring it to the same shape.
ALTER TABLE public.tasks
    ADD COLUMN IF NOT EXISTS params jsonb,
    ADD COLUMN IF NOT EXISTS attempts int,
    ADD COLUMN IF NOT EXISTS worker_id text,
    ADD COLUMN IF NOT EXISTS generation_started_at timestamptz,
    ADD COLUMN IF NOT EXISTS generation_processed_at timestamptz,
    ADD COLUMN IF NOT EXISTS error_message text,
    ADD COLUMN IF NOT EXISTS result_data jsonb,
    ADD COLUMN IF NOT EXISTS created_at timestamptz,
    ADD COLUMN IF NOT EXISTS updated_at timestamptz;
ALTER TABLE public.workers
    ADD COLUMN IF NOT EXISTS instance_type text,
    ADD COLUMN IF NOT EXISTS last_heartbeat timestamptz,
    ADD COLUMN IF NOT EXISTS metadata jsonb,
    ADD COLUMN IF NOT EXISTS created_at timestamptz;

UPDATE public.tasks SET
    status = coalesce(status, 'Queued'), task_type = coalesce(task_type, 'unknown'),
    params = coalesce(params, '{}'), attempts = coalesce(attempts, 0),
    created_at = coalesce(created_at, shiftboss.now()), updated_at = coalesce(updated_at, shiftboss.now())
WHERE status IS NULL OR task_type IS NULL OR params IS NULL OR attempts IS NULL OR created_at IS NULL OR updated_at IS NULL;
UPDATE public.workers SET
    instance_type = coalesce(instance_type, 'external'), status = coalesce(status, 'inactive'),
    metadata = coalesce(metadata, '{}'), created_at = coalesce(created_at, shiftboss.now())
WHERE instance_type IS NULL OR status IS NULL OR metadata IS NULL OR created_at IS NULL;

ALTER TABLE public.tasks
    ALTER COLUMN id SET DEFAULT gen_random_uuid(),
    ALTER COLUMN status SET DEFAULT 'Queued', ALTER COLUMN status SET NOT NULL,
    ALTER COLUMN task_type SET NOT NULL,
    ALTER COLUMN params SET DEFAULT '{}', ALTER COLUMN params SET NOT NULL,
    ALTER COLUMN attempts SET DEFAULT 0, ALTER COLUMN attempts SET NOT NULL,
    ALTER COLUMN created_at SET DEFAULT shiftboss.now(), ALTER COLUMN created_at SET NOT NULL,
    ALTER COLUMN updated_at SET DEFAULT shiftboss.now(), ALTER COLUMN updated_at SET NOT NULL;
ALTER TABLE public.workers
    ALTER COLUMN instance_type SET DEFAULT 'external', ALTER COLUMN instance_type SET NOT NULL,
    ALTER COLUMN status SET DEFAULT 'active', ALTER COLUMN status SET NOT NULL,
    ALTER COLUMN metadata SET DEFAULT '{}', ALTER COLUMN metadata SET NOT NULL,
    ALTER COLUMN created_at SET DEFAULT shiftboss.now(), ALTER COLUMN created_at SET NOT NULL;

-- What is ours. Columns that most tasks leave empty are NULL, which costs a row nothing.
ALTER TABLE public.tasks
    ADD COLUMN IF NOT EXISTS queue text NOT NULL DEFAULT 'default' CONSTRAINT tasks_queue_named CHECK (queue <> ''),
    ADD COLUMN IF NOT EXISTS priority smallint NOT NULL DEFAULT 5
        CONSTRAINT tasks_priority_range CHECK (priority BETWEEN 0 AND 100),
    ADD COLUMN IF NOT EXISTS origin text,
    ADD COLUMN IF NOT EXISTS tenant text,
    ADD COLUMN IF NOT EXISTS run_at timestamptz
        CONSTRAINT tasks_run_at_sane CHECK (run_at > '2000-01-01 00:00+00' AND run_at < '2200-01-01 00:00+00'),
    ADD COLUMN IF NOT EXISTS deadline timestamptz,
    ADD COLUMN IF NOT EXISTS timeout interval CONSTRAINT tasks_timeout_positive CHECK (timeout > interval '0'),
    ADD COLUMN IF NOT EXISTS dedup_key text,
    ADD COLUMN IF NOT EXISTS concurrency_key text,
    ADD COLUMN IF NOT EXISTS max_attempts smallint NOT NULL DEFAULT 3
        CONSTRAINT tasks_max_attempts_range CHECK (max_attempts BETWEEN 1 AND 1000),
    ADD COLUMN IF NOT EXISTS backoff interval CHECK (backoff >= interval '0'),
    ADD COLUMN IF NOT EXISTS backoff_factor real CHECK (backoff_factor >= 1),
    ADD COLUMN IF NOT EXISTS backoff_max interval CHECK (backoff_max > interval '0'),
    ADD COLUMN IF NOT EXISTS depends_on uuid[],
    ADD COLUMN IF NOT EXISTS on_dependency_failure text
        CONSTRAINT tasks_on_dependency_failure_word CHECK (on_dependency_failure IN ('cancel', 'fail', 'run')),
    ADD COLUMN IF NOT EXISTS requires jsonb,
    ADD COLUMN IF NOT EXISTS region text,
    ADD COLUMN IF NOT EXISTS run_id uuid,
    ADD COLUMN IF NOT EXISTS metadata jsonb,
    ADD COLUMN IF NOT EXISTS lease bigint,
    ADD COLUMN IF NOT EXISTS lease_expires_at timestamptz,
    ADD COLUMN IF NOT EXISTS last_worker_id text,
    ADD COLUMN IF NOT EXISTS crashes smallint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS hold text CHECK (hold IN ('dependency', 'limit')),
    ADD COLUMN IF NOT EXISTS wait_reason text,
    ADD COLUMN IF NOT EXISTS cancel_requested_at timestamptz,
    ADD COLUMN IF NOT EXISTS has_dependants boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS awaited boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS progress smallint CHECK (progress BETWEEN 0 AND 100),
    ADD COLUMN IF NOT EXISTS progress_message text;

-- A lane is one FIFO: tasks that the same workers may take, at one priority, of one tenant. A claim walks lanes, so
-- that tasks which a worker may not have are never in the way of those that it may. Not a generated column: PostgreSQL
-- reads the expression of one anew for every row of an UPDATE that leaves it alone, which doubled the cost of a task.
CREATE OR REPLACE FUNCTION shiftboss.lane_of(p_queue text, p_task_type text, p_priority smallint, p_tenant text, p_requires jsonb)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended(p_queue || chr(31) || p_task_type || chr(31) || p_priority::text || chr(31)
        || coalesce(p_tenant, '') || chr(31) || coalesce(p_requires::text, ''), 0)
$$;

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'tasks_status_word' AND conrelid = 'public.tasks'::regclass) THEN
        ALTER TABLE public.tasks ADD CONSTRAINT tasks_status_word
            CHECK (status IN ('Queued', 'In Progress', 'Complete', 'Failed', 'Cancelled')) NOT VALID;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'workers_status_word' AND conrelid = 'public.workers'::regclass) THEN
        ALTER TABLE public.workers ADD CONSTRAINT workers_status_word
            CHECK (status IN ('inactive', 'active', 'terminated')) NOT VALID;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'tasks_type_named' AND conrelid = 'public.tasks'::regclass) THEN
        ALTER TABLE public.tasks ADD CONSTRAINT tasks_type_named CHECK (task_type <> '') NOT VALID;
    END IF;
END $$;

ALTER TABLE public.workers
    ADD COLUMN IF NOT EXISTS queues text[],              -- NULL: any queue
    ADD COLUMN IF NOT EXISTS capabilities jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS resource_limits jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS resource_usage jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS region text,
    ADD COLUMN IF NOT EXISTS host text,
    ADD COLUMN IF NOT EXISTS pid int,
    ADD COLUMN IF NOT EXISTS version text,
    ADD COLUMN IF NOT EXISTS incarnation uuid,
    ADD COLUMN IF NOT EXISTS lease_time interval NOT NULL DEFAULT '5 minutes',
    ADD COLUMN IF NOT EXISTS lease_expires_at timestamptz,
    ADD COLUMN IF NOT EXISTS paused boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS draining boolean NOT NULL DEFAULT false;

-- The documented indexes, under their documented names.
CREATE INDEX IF NOT EXISTS idx_tasks_status_worker ON public.tasks (status, worker_id);
CREATE INDEX IF NOT EXISTS idx_tasks_queued_created ON public.tasks (created_at) WHERE status = 'Queued';
CREATE INDEX IF NOT EXISTS idx_tasks_running_started ON public.tasks (generation_started_at) WHERE status = 'In Progress';
CREATE INDEX IF NOT EXISTS idx_workers_status_heartbeat ON public.workers (status, last_heartbeat);
CREATE INDEX IF NOT EXISTS idx_tasks_claim_optimization ON public.tasks (status, created_at) WHERE status = 'Queued';

-- The claim's own: only what can be taken is in it, lane by lane, oldest first.
CREATE INDEX IF NOT EXISTS tasks_claim ON public.tasks (
    shiftboss.lane_of(queue, task_type, priority, tenant, requires), (coalesce(run_at, created_at)), id)
    WHERE status = 'Queued' AND hold IS NULL;
CREATE UNIQUE INDEX IF NOT EXISTS tasks_dedup ON public.tasks (dedup_key)
    WHERE dedup_key IS NOT NULL AND status IN ('Queued', 'In Progress');
CREATE INDEX IF NOT EXISTS tasks_finished ON public.tasks (generation_processed_at)
    WHERE status IN ('Complete', 'Failed', 'Cancelled');
CREATE INDEX IF NOT EXISTS tasks_leased ON public.tasks (lease_expires_at)
    WHERE status = 'In Progress' AND lease_expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_running_key ON public.tasks (task_type, concurrency_key)
    WHERE status = 'In Progress' AND concurrency_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_parked ON public.tasks (task_type, concurrency_key, (coalesce(run_at, created_at)))
    WHERE status = 'Queued' AND hold = 'limit';
CREATE INDEX IF NOT EXISTS tasks_deadline ON public.tasks (deadline)
    WHERE status = 'Queued' AND deadline IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_run ON public.tasks (run_id) WHERE run_id IS NOT NULL;

CREATE SEQUENCE IF NOT EXISTS shiftboss.lease_seq;

-- Lanes that were ever used. Not unique on purpose: a unique key would make one long transaction that uses a new lane
-- block everybody else who does. Doubles are harmless and tidied away.
CREATE TABLE IF NOT EXISTS shiftboss.lanes (
    lane bigint NOT NULL,
    queue text NOT NULL,
    task_type text NOT NULL,
    priority smallint NOT NULL,
    tenant text,
    requires jsonb,
    created_at timestamptz NOT NULL DEFAULT shiftboss.now()
);
CREATE INDEX IF NOT EXISTS lanes_lane ON shiftboss.lanes (lane);

INSERT INTO shiftboss.lanes (lane, queue, task_type, priority, tenant, requires)
SELECT DISTINCT ON (n.lane) n.* FROM (
    SELECT shiftboss.lane_of(queue, task_type, priority, tenant, requires) AS lane, queue, task_type, priority, tenant, requires
    FROM public.tasks WHERE status = 'Queued') n
WHERE NOT EXISTS (SELECT FROM shiftboss.lanes l WHERE l.lane = n.lane);

-- Attempts that ended in anything but success. The successful one is the task's own row; the view shiftboss.attempts
-- shows both.
CREATE TABLE IF NOT EXISTS shiftboss.past_attempts (
    task_id uuid NOT NULL,
    lease bigint,
    attempt int NOT NULL,
    worker_id text,
    started_at timestamptz,
    ended_at timestamptz NOT NULL,
    outcome text NOT NULL
        CHECK (outcome IN ('complete', 'failed', 'timeout', 'lost', 'crashed', 'deferred', 'released', 'cancelled')),
    error text
);
CREATE INDEX IF NOT EXISTS past_attempts_task ON shiftboss.past_attempts (task_id);

CREATE TABLE IF NOT EXISTS shiftboss.dependencies (
    parent_id uuid NOT NULL,
    child_id uuid NOT NULL,
    PRIMARY KEY (parent_id, child_id)
);
CREATE INDEX IF NOT EXISTS dependencies_child ON shiftboss.dependencies (child_id);

CREATE TABLE IF NOT EXISTS shiftboss.pauses (
    kind text NOT NULL CHECK (kind IN ('queue', 'task_type')),
    name text NOT NULL,
    reason text,
    paused_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    PRIMARY KEY (kind, name)
);

CREATE TABLE IF NOT EXISTS shiftboss.limits (
    kind text NOT NULL CHECK (kind IN ('queue', 'task_type')),
    name text NOT NULL,
    max_running int CHECK (max_running >= 0),
    max_per_key int CHECK (max_per_key >= 1),
    rate int CHECK (rate >= 1),
    rate_period interval CHECK (rate_period > interval '0'),
    tokens double precision,
    refilled_at timestamptz,
    PRIMARY KEY (kind, name),
    CHECK ((rate IS NULL) = (rate_period IS NULL)),
    CONSTRAINT limits_key_by_type CHECK (max_per_key IS NULL OR kind = 'task_type')
);

CREATE TABLE IF NOT EXISTS shiftboss.tenants (
    name text PRIMARY KEY,
    weight real NOT NULL DEFAULT 1 CHECK (weight > 0)
);

-- What the fleet did, a row per minute, worker and task type: metrics and charts read this, never the whole history.
CREATE TABLE IF NOT EXISTS shiftboss.stats (
    minute timestamptz NOT NULL,
    worker_id text NOT NULL,
    queue text NOT NULL,
    task_type text NOT NULL,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    seconds double precision NOT NULL DEFAULT 0,
    buckets bigint[] NOT NULL,
    PRIMARY KEY (minute, worker_id, queue, task_type)
);

CREATE TABLE IF NOT EXISTS shiftboss.events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT shiftboss.now(),
    kind text NOT NULL,
    worker_id text,
    component text,
    task_id uuid,
    details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS events_at ON shiftboss.events (at);
CREATE INDEX IF NOT EXISTS events_worker ON shiftboss.events (worker_id, id) WHERE worker_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS events_component ON shiftboss.events (component, id) WHERE component IS NOT NULL;

CREATE TABLE IF NOT EXISTS shiftboss.settings (
    key text PRIMARY KEY,
    value text NOT NULL
);

-- Task rows are updated twice and then rest: vacuum early, so that the claim's index stays short.
ALTER TABLE public.tasks SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
