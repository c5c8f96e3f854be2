-- Runs as the API and the page show them.

CREATE OR REPLACE VIEW shiftboss.runs AS
SELECT id, bot, city, category, status, progress, counters, error_message, started_at, finished_at, created_at, params,
    task_id, retry_of, requested_by, message,
    greatest(extract(epoch FROM coalesce(finished_at, shiftboss.now()) - started_at), 0)::double precision AS duration_seconds
FROM public.worker_runs;
