-- What workers used over the last half hour, for the lines on the page of workers.
CREATE TABLE IF NOT EXISTS shiftboss.worker_samples (
    at timestamptz NOT NULL,
    worker_id text NOT NULL,
    memory_mb real,
    cpu_percent real,
    running real,
    PRIMARY KEY (at, worker_id)
);
