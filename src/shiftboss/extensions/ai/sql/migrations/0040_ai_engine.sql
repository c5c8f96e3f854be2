-- What the fleet shares about AI providers: one row of state each, a log of calls that cost something,
-- totals per day, and the cache of results. Keys and prompts are never stored here.

CREATE TABLE IF NOT EXISTS shiftboss.ai_providers (
    provider            text PRIMARY KEY,
    model               text NOT NULL DEFAULT '',
    circuit             text NOT NULL DEFAULT 'closed' CHECK (circuit IN ('closed', 'open', 'half-open')),
    failures            int NOT NULL DEFAULT 0,
    opened_at           timestamptz,
    probe_id            bigint,
    probe_until         timestamptz,
    held_until          timestamptz,
    latency_ms          double precision,
    last_error          text,
    last_error_at       timestamptz,
    requests_per_minute int,
    tokens_per_minute   int,
    daily_budget        numeric(14, 6),
    failure_limit       int NOT NULL DEFAULT 5,
    recovery            interval NOT NULL DEFAULT '30 seconds',
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE IF NOT EXISTS shiftboss.ai_calls (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider          text NOT NULL,
    model             text NOT NULL,
    kind              text NOT NULL CHECK (kind IN ('completion', 'embedding')),
    task_type         text NOT NULL,
    task_id           uuid,
    started_at        timestamptz NOT NULL,
    lease_until       timestamptz NOT NULL,
    finished_at       timestamptz,
    outcome           text,
    prompt_tokens     int NOT NULL DEFAULT 0,
    completion_tokens int NOT NULL DEFAULT 0,
    cost              numeric(14, 8) NOT NULL DEFAULT 0,
    latency_ms        double precision,
    error             text
);
COMMENT ON COLUMN shiftboss.ai_calls.outcome IS 'NULL while under way; tokens and cost are estimates until then';
CREATE INDEX IF NOT EXISTS ai_calls_by_time ON shiftboss.ai_calls (provider, started_at);
CREATE INDEX IF NOT EXISTS ai_calls_under_way ON shiftboss.ai_calls (provider) WHERE outcome IS NULL;
CREATE INDEX IF NOT EXISTS ai_calls_of_task ON shiftboss.ai_calls (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS ai_calls_age ON shiftboss.ai_calls (started_at);

CREATE TABLE IF NOT EXISTS shiftboss.ai_spend (
    provider          text NOT NULL,
    day               date NOT NULL,
    calls             bigint NOT NULL DEFAULT 0,
    errors            bigint NOT NULL DEFAULT 0,
    prompt_tokens     bigint NOT NULL DEFAULT 0,
    completion_tokens bigint NOT NULL DEFAULT 0,
    cost              numeric(18, 8) NOT NULL DEFAULT 0,
    PRIMARY KEY (provider, day)
);

-- A cache may be lost in a crash; writing it without WAL makes it cheap.
CREATE UNLOGGED TABLE IF NOT EXISTS shiftboss.ai_cache (
    key           text PRIMARY KEY,
    task_type     text NOT NULL,
    value         jsonb,
    expires_at    timestamptz NOT NULL,
    owner         uuid,
    claimed_until timestamptz
);
CREATE INDEX IF NOT EXISTS ai_cache_expiry ON shiftboss.ai_cache (expires_at);

CREATE TABLE IF NOT EXISTS shiftboss.ai_cache_use (
    day       date NOT NULL,
    task_type text NOT NULL,
    hits      bigint NOT NULL DEFAULT 0,
    misses    bigint NOT NULL DEFAULT 0,
    errors    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (day, task_type)
);
