-- requires: vector
-- Search by time alone, over all writers, must be able to find its entries.
CREATE INDEX IF NOT EXISTS entries_by_time_of_all ON journal.entries (written_at);
