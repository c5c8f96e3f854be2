-- Whether a wait made its child, or found one that was live under the same dedup_key: cancelling cancels only the former.
ALTER TABLE shiftboss.steps ADD COLUMN IF NOT EXISTS child_made boolean;
-- Suspended tasks are counted apart from those that wait for a worker.
CREATE INDEX IF NOT EXISTS tasks_suspended ON public.tasks (queue) WHERE status = 'Queued' AND hold IN ('sleep', 'event', 'child');
