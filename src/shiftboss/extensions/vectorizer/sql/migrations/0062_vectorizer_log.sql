-- Changed rows go into a log (ai._log_<generation>) that triggers only append to; workers fold it into the queue.
-- Columns are known by number too, so that a renamed one is followed. build tells which vectorizers are still made the
-- former way: functions/99_rebuild.sql brings them up to date.

ALTER TABLE ai.vectorizer
    ADD COLUMN IF NOT EXISTS key_numbers int2[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS watched_numbers int2[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS build int NOT NULL DEFAULT 1;
