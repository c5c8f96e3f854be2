-- Who may do what: tokens, login codes, audit. An older database has these tables already.

-- Only hashes are stored, so reading the database gives nobody access. A session is a token made by a login; it ends with
-- its parent.
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
