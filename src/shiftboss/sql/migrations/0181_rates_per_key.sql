-- A rate may hold for each concurrency key or each tenant by itself: then every one of them has a token bucket.
ALTER TABLE shiftboss.limits ADD COLUMN IF NOT EXISTS rate_per text NOT NULL DEFAULT 'all'
    CONSTRAINT limits_rate_per_word CHECK (rate_per IN ('all', 'key', 'tenant'));
CREATE TABLE IF NOT EXISTS shiftboss.rate_buckets (
    kind text NOT NULL,
    name text NOT NULL,
    key text NOT NULL,
    tokens double precision NOT NULL,
    refilled_at timestamptz NOT NULL,
    PRIMARY KEY (kind, name, key)
);
CREATE INDEX IF NOT EXISTS rate_buckets_refilled ON shiftboss.rate_buckets (kind, name, refilled_at);
