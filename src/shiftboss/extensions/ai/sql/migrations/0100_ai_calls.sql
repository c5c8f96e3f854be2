-- Calls get an id that the caller chooses, so that admitting or settling one twice counts it once. They know whose they
-- are (tenant, key), which template asked, and what was said. Limits can be set per tenant, task type and key.

ALTER TABLE shiftboss.ai_calls
    ADD COLUMN IF NOT EXISTS call_id uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN IF NOT EXISTS tenant text,
    ADD COLUMN IF NOT EXISTS key text,
    ADD COLUMN IF NOT EXISTS template text,
    ADD COLUMN IF NOT EXISTS template_version text,
    ADD COLUMN IF NOT EXISTS finish_reason text,
    ADD COLUMN IF NOT EXISTS free boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN shiftboss.ai_calls.free IS
    'answered by the cache or by a provider without key, cost and limit: needed no admission and uses up no limit';
CREATE UNIQUE INDEX IF NOT EXISTS ai_calls_call_id ON shiftboss.ai_calls (call_id);
CREATE INDEX IF NOT EXISTS ai_calls_of_tenant ON shiftboss.ai_calls (tenant, started_at) WHERE tenant IS NOT NULL;
CREATE INDEX IF NOT EXISTS ai_calls_of_key ON shiftboss.ai_calls (key, started_at) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS ai_calls_of_type ON shiftboss.ai_calls (task_type, started_at);

-- Prompts and answers are kept apart from the calls: they are larger, and go sooner.
CREATE TABLE IF NOT EXISTS shiftboss.ai_call_texts (
    call_id    uuid PRIMARY KEY,
    prompt     jsonb NOT NULL,
    answer     jsonb,
    expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS ai_call_texts_expiry ON shiftboss.ai_call_texts (expires_at);

CREATE TABLE IF NOT EXISTS shiftboss.ai_limits (
    scope               text NOT NULL CHECK (scope IN ('tenant', 'task_type', 'key')),
    name                text NOT NULL CHECK (name <> ''),
    daily_budget        numeric(14, 6) CHECK (daily_budget >= 0),
    requests_per_minute int CHECK (requests_per_minute > 0),
    tokens_per_minute   int CHECK (tokens_per_minute > 0),
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, name)
);
COMMENT ON COLUMN shiftboss.ai_limits.name IS '"*" is the limit of each one that has no row of its own';

CREATE TABLE IF NOT EXISTS shiftboss.ai_scope_spend (
    scope  text NOT NULL,
    name   text NOT NULL,
    day    date NOT NULL,
    calls  bigint NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    cost   numeric(18, 8) NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name, day)
);
