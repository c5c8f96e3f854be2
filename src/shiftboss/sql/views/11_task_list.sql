CREATE OR REPLACE VIEW shiftboss.task_list AS
SELECT t.id, t.status, t.task_type, t.queue, t.priority, t.tenant, t.params, t.result_data AS result,
    t.error_message AS error,
    t.attempts AS failed_attempts, t.max_attempts, coalesce(t.worker_id, t.last_worker_id) AS worker,
    t.created_at, coalesce(t.run_at, t.created_at) AS ready_at, t.generation_started_at AS started_at,
    CASE WHEN t.status IN ('Complete', 'Failed', 'Cancelled') THEN t.generation_processed_at END AS finished_at,
    CASE WHEN t.generation_started_at IS NOT NULL THEN shiftboss.seconds_between(t.generation_started_at,
        coalesce(t.generation_processed_at, shiftboss.now())) END AS seconds,
    t.progress, t.progress_message, t.deadline, t.cancel_requested_at, t.metadata
FROM public.tasks t;
