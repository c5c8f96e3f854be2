CREATE OR REPLACE VIEW shiftboss.attempts AS
SELECT task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error FROM shiftboss.past_attempts
UNION ALL
SELECT id, lease, attempts + 1, worker_id, generation_started_at, generation_processed_at,
    CASE status WHEN 'Complete' THEN 'complete' ELSE 'running' END, NULL
FROM public.tasks WHERE status IN ('In Progress', 'Complete') AND generation_started_at IS NOT NULL;
