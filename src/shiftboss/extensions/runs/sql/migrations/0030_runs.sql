-- Tracked runs of long jobs, the places that the bots keep, and who may do what: tokens, login codes, audit.

CREATE TABLE IF NOT EXISTS public.worker_runs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    bot text NOT NULL CONSTRAINT worker_runs_bot_named CHECK (bot <> ''),
    city text,
    category text,
    status text NOT NULL DEFAULT 'pending'
        CONSTRAINT worker_runs_status_word CHECK (status IN ('pending', 'running', 'finished', 'failed')),
    progress int NOT NULL DEFAULT 0,
    counters jsonb NOT NULL DEFAULT '{}',
    error_message text,
    started_at timestamptz,
    finished_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    -- ours
    params jsonb NOT NULL DEFAULT '{}',
    task_id uuid,
    retry_of uuid,
    requested_by text,
    message text,
    checkpoint jsonb,
    CONSTRAINT worker_runs_progress_range CHECK (progress BETWEEN 0 AND 100),
    CONSTRAINT worker_runs_full_when_finished CHECK ((progress = 100) = (status = 'finished')),
    CONSTRAINT worker_runs_counters_object CHECK (jsonb_typeof(counters) = 'object')
);
CREATE INDEX IF NOT EXISTS worker_runs_recent ON public.worker_runs (created_at DESC, id DESC);
CREATE INDEX IF NOT EXISTS worker_runs_bot ON public.worker_runs (bot, created_at DESC);
CREATE INDEX IF NOT EXISTS worker_runs_status ON public.worker_runs (status, created_at DESC);
-- The same job is carried out once at a time, whoever asks for it.
CREATE UNIQUE INDEX IF NOT EXISTS worker_runs_live ON public.worker_runs
    (bot, coalesce(city, ''), coalesce(category, ''), md5(params::text)) WHERE status IN ('pending', 'running');

CREATE TABLE IF NOT EXISTS public.places (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    city text NOT NULL,
    name text NOT NULL,
    plain_name text NOT NULL,
    category text,
    confidence real CHECK (confidence BETWEEN 0 AND 1),
    status text NOT NULL DEFAULT 'candidate'
        CONSTRAINT places_status_word CHECK (status IN ('candidate', 'verified', 'rejected')),
    lat double precision NOT NULL CHECK (lat BETWEEN -90 AND 90),
    lon double precision NOT NULL CHECK (lon BETWEEN -180 AND 180),
    address text,
    phone text,
    website text,
    opening_hours text,
    tags jsonb NOT NULL DEFAULT '{}',
    checks jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    seen_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    classified_at timestamptz,
    checked_at timestamptz
);
CREATE INDEX IF NOT EXISTS places_city ON public.places (city, id);
CREATE INDEX IF NOT EXISTS places_name ON public.places (city, plain_name);
CREATE INDEX IF NOT EXISTS places_phone ON public.places (city, phone) WHERE phone IS NOT NULL;
CREATE INDEX IF NOT EXISTS places_checked ON public.places (checked_at);

-- Under which names a source knows a place; one place may have several.
CREATE TABLE IF NOT EXISTS shiftboss.place_sources (
    source_id text PRIMARY KEY,
    place_id uuid NOT NULL REFERENCES public.places ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS place_sources_place ON shiftboss.place_sources (place_id);

-- Only hashes are kept: nobody who reads the database can act with what he finds. A session is a token that a login made;
-- it ends with its parent.
CREATE TABLE IF NOT EXISTS shiftboss.access_tokens (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    kind text NOT NULL DEFAULT 'token' CHECK (kind IN ('token', 'session')),
    name text NOT NULL CHECK (name <> ''),
    role text NOT NULL CONSTRAINT access_tokens_role_word CHECK (role IN ('viewer', 'operator', 'admin', 'worker')),
    hash bytea NOT NULL UNIQUE,
    parent_id uuid REFERENCES shiftboss.access_tokens ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz
);
CREATE UNIQUE INDEX IF NOT EXISTS access_tokens_name ON shiftboss.access_tokens (name)
    WHERE kind = 'token' AND revoked_at IS NULL;

-- One-time login links.
CREATE TABLE IF NOT EXISTS shiftboss.login_codes (
    hash bytea PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    expires_at timestamptz NOT NULL
);

CREATE TABLE IF NOT EXISTS shiftboss.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT shiftboss.now(),
    actor text NOT NULL,
    role text NOT NULL,
    action text NOT NULL,
    target text,
    outcome text NOT NULL CHECK (outcome IN ('done', 'refused', 'failed')),
    details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS audit_actor ON shiftboss.audit (actor, id);

-- Lists of ended tasks by kind stay quick beside a million completed ones; the partial indexes cost the others nothing.
CREATE INDEX IF NOT EXISTS tasks_failed ON public.tasks (generation_processed_at, id) WHERE status = 'Failed';
CREATE INDEX IF NOT EXISTS tasks_cancelled ON public.tasks (generation_processed_at, id) WHERE status = 'Cancelled';
