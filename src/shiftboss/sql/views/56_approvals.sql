CREATE OR REPLACE VIEW shiftboss.approvals AS
SELECT s.task_id, t.task_type, t.queue, t.tenant, s.name, s.ordinal, s.question, s.schema, s.started_at AS asked_at,
    s.until
FROM shiftboss.steps s JOIN public.tasks t ON t.id = s.task_id
WHERE s.state = 'waiting' AND s.question IS NOT NULL AND s.ordinal > 0 AND t.status = 'Queued'
    AND t.hold IN ('sleep', 'event', 'child');
