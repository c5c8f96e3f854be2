CREATE OR REPLACE VIEW shiftboss.unusable_tasks AS
SELECT t.id, t.status, t.task_type, u.reason, t.created_at
FROM shiftboss.unusable u JOIN public.tasks t ON t.id = u.task_id
WHERE t.status NOT IN ('Queued', 'In Progress', 'Complete', 'Failed', 'Cancelled') OR t.hold = 'unusable'
ORDER BY t.created_at, t.id;
