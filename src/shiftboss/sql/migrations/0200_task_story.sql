-- What the page of one task looks up: the tasks that depend on it, also after it has ended; the task that runs it as a child;
-- the fleet's events about it. Only rows that have such a reference are in these indexes.
CREATE INDEX IF NOT EXISTS tasks_depends_on ON public.tasks USING gin (depends_on) WHERE depends_on IS NOT NULL;
CREATE INDEX IF NOT EXISTS steps_of_child ON shiftboss.steps (child_id) WHERE child_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS events_task ON shiftboss.events (task_id, id) WHERE task_id IS NOT NULL;
