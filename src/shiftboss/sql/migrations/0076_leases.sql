-- Leases by name, for what one process of the fleet does at a time: leading it, and supervising a host.
CREATE TABLE IF NOT EXISTS shiftboss.leases (
    name text PRIMARY KEY CONSTRAINT leases_name_given CHECK (name <> ''),
    token uuid NOT NULL,              -- random, a new one for each term
    holder jsonb NOT NULL DEFAULT '{}',
    duration interval NOT NULL CONSTRAINT leases_duration_positive CHECK (duration > interval '0'),
    acquired_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    expires_at timestamptz NOT NULL
);
