-- The number of the last beat whose statistics were counted, within one incarnation.
ALTER TABLE public.workers ADD COLUMN IF NOT EXISTS counted_beat bigint NOT NULL DEFAULT 0;

-- For the rescuer, which looks for held tasks without a dependency.
CREATE INDEX IF NOT EXISTS tasks_held ON public.tasks (id) WHERE status = 'Queued' AND hold = 'dependency';

-- Rows from before Shiftboss that no worker can take: an unknown status, or an empty type. They stay as they are; those that
-- would be in the claim's index are held. The rule for new rows is shiftboss.refuse_type: as a CHECK it would refuse every
-- UPDATE of the old ones.
ALTER TABLE public.tasks DROP CONSTRAINT IF EXISTS tasks_type_named;
ALTER TABLE public.tasks DROP CONSTRAINT IF EXISTS tasks_hold_check;
ALTER TABLE public.tasks ADD CONSTRAINT tasks_hold_check CHECK (hold IN ('dependency', 'limit', 'unusable')) NOT VALID;

CREATE TABLE IF NOT EXISTS shiftboss.unusable (
    task_id uuid PRIMARY KEY,
    reason text NOT NULL
);
INSERT INTO shiftboss.unusable (task_id, reason)
SELECT id, CASE task_type WHEN '' THEN 'it has no task_type' ELSE format('its status "%s" is unknown', status) END
FROM public.tasks
WHERE task_type = '' OR status NOT IN ('Queued', 'In Progress', 'Complete', 'Failed', 'Cancelled')
ON CONFLICT DO NOTHING;
UPDATE public.tasks SET hold = 'unusable' WHERE task_type = '' AND status IN ('Queued', 'In Progress')
    AND hold IS DISTINCT FROM 'unusable';
DELETE FROM shiftboss.lanes WHERE task_type = '';
