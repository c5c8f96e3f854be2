-- The statistics of each 20 minutes without the workers, for charts over days: see fold_stats() in 96_insights.sql.
CREATE TABLE IF NOT EXISTS shiftboss.stats_slots (
    slot timestamptz NOT NULL,
    queue text NOT NULL,
    task_type text NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    seconds double precision NOT NULL,
    buckets bigint[] NOT NULL,
    PRIMARY KEY (slot, queue, task_type)
);
