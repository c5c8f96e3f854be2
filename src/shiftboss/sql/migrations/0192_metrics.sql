-- Figures for /metrics that are read as they are: a scrape adds up no history.

-- What each worker has done, by task type; a departed worker's rows go within the hour.
CREATE TABLE IF NOT EXISTS shiftboss.work_totals (
    worker_id text NOT NULL,
    task_type text NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    seconds double precision NOT NULL,
    buckets bigint[] NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (worker_id, task_type)
) WITH (fillfactor = 70);

-- Counters of the fleet. What happens is appended, and added up by the leader.
CREATE TABLE IF NOT EXISTS shiftboss.counters (
    name text PRIMARY KEY,
    value bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS shiftboss.counter_tallies (
    name text NOT NULL,
    value bigint NOT NULL
);

-- How many tasks wait in each queue, counted by the leader now and then while there are too many to count in a scrape.
CREATE TABLE IF NOT EXISTS shiftboss.queue_counts (
    queue text PRIMARY KEY,
    queued bigint NOT NULL
);
