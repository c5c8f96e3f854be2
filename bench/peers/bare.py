"""The table that enqueues are compared with: the columns, indexes and rules of `tasks`, but no triggers.

Its rules are CHECKs, as they were in `tasks` when the targets were set.
"""

TABLE = """
CREATE TABLE IF NOT EXISTS public.bare (LIKE public.tasks INCLUDING ALL,
    CHECK (status IN ('Queued', 'In Progress', 'Complete', 'Failed', 'Cancelled')),
    CHECK (hold IN ('dependency', 'limit', 'unusable', 'sleep', 'event', 'child')),
    CHECK (on_dependency_failure IN ('cancel', 'fail', 'run')), CHECK (queue <> ''),
    CHECK (priority BETWEEN 0 AND 100), CHECK (max_attempts BETWEEN 1 AND 1000),
    CHECK (progress BETWEEN 0 AND 100), CHECK (timeout > interval '0'), CHECK (backoff >= interval '0'),
    CHECK (backoff_factor >= 1), CHECK (backoff_max > interval '0'),
    CHECK (run_at > '2000-01-01 00:00+00' AND run_at < '2200-01-01 00:00+00'))
"""
