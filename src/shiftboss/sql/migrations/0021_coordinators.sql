-- Coordinators that run now, and how long their work takes them: what metrics show of them.
CREATE TABLE IF NOT EXISTS shiftboss.coordinators (
    name text PRIMARY KEY,
    pid int NOT NULL,
    workers int NOT NULL DEFAULT 0,      -- streams open
    figures jsonb NOT NULL DEFAULT '{}', -- see shiftboss.coordinator.figures
    started_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    seen_at timestamptz NOT NULL DEFAULT shiftboss.now()
);
