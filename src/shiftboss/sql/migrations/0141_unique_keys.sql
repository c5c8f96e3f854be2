-- Keys that stay taken for a period, however soon their task ends.
CREATE TABLE IF NOT EXISTS shiftboss.unique_keys (
    dedup_key text PRIMARY KEY,
    task_id uuid NOT NULL,
    until timestamptz NOT NULL
);
