-- The former index began with the columns of the primary key. Without statistics, the planner used it to find a single
-- key, and read all keys of the limit for each.
DROP INDEX IF EXISTS shiftboss.rate_buckets_refilled;
CREATE INDEX IF NOT EXISTS rate_buckets_age ON shiftboss.rate_buckets (refilled_at);
