-- Alerts: one row from when a rule finds something until it no longer does. See functions/98_alerts.sql.
CREATE TABLE IF NOT EXISTS shiftboss.alerts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rule text NOT NULL,
    subject text NOT NULL DEFAULT '',     -- what it is about: a queue, a task type, a slot, a provider
    severity text NOT NULL,
    message text NOT NULL,
    advice text,
    value double precision,
    threshold double precision,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    ended_at timestamptz
);
CREATE UNIQUE INDEX IF NOT EXISTS alerts_firing ON shiftboss.alerts (rule, subject) WHERE ended_at IS NULL;
CREATE INDEX IF NOT EXISTS alerts_started ON shiftboss.alerts (started_at);

-- What is to be sent. The target is a hash: addresses of webhooks are secrets of the settings.
CREATE TABLE IF NOT EXISTS shiftboss.alert_deliveries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alert_id bigint NOT NULL REFERENCES shiftboss.alerts ON DELETE CASCADE,
    moment text NOT NULL CHECK (moment IN ('start', 'end')),
    target text NOT NULL,
    attempts int NOT NULL DEFAULT 0,
    next_at timestamptz,                  -- NULL: delivered, or given up
    delivered_at timestamptz,
    error text,
    UNIQUE (alert_id, moment, target)
);
CREATE INDEX IF NOT EXISTS alert_deliveries_due ON shiftboss.alert_deliveries (next_at) WHERE next_at IS NOT NULL;
