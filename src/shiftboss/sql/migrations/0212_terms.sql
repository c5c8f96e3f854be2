-- shiftboss.check_terms() checks these rules from now on: see functions/10_enqueue.sql.
ALTER TABLE public.tasks
    DROP CONSTRAINT IF EXISTS tasks_status_word, DROP CONSTRAINT IF EXISTS tasks_queue_named,
    DROP CONSTRAINT IF EXISTS tasks_priority_range, DROP CONSTRAINT IF EXISTS tasks_max_attempts_range,
    DROP CONSTRAINT IF EXISTS tasks_run_at_sane, DROP CONSTRAINT IF EXISTS tasks_timeout_positive,
    DROP CONSTRAINT IF EXISTS tasks_backoff_check, DROP CONSTRAINT IF EXISTS tasks_backoff_factor_check,
    DROP CONSTRAINT IF EXISTS tasks_backoff_max_check, DROP CONSTRAINT IF EXISTS tasks_on_dependency_failure_word,
    DROP CONSTRAINT IF EXISTS tasks_hold_check, DROP CONSTRAINT IF EXISTS tasks_progress_check;
