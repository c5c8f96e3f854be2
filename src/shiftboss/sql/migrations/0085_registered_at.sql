-- When the process that goes by a worker's name registered: one that had started by then is its rival, not its successor.
ALTER TABLE public.workers ADD COLUMN IF NOT EXISTS registered_at timestamptz;
ALTER TABLE shiftboss.sessions ADD COLUMN IF NOT EXISTS attached_at timestamptz;  -- NULL: its stream was never open yet

-- Functions that have more parameters or columns now.
DROP FUNCTION IF EXISTS shiftboss.register(text, text, text[], jsonb, jsonb, text, text, int, text, uuid, interval, jsonb);
DROP FUNCTION IF EXISTS shiftboss.mark_crashed(text, text, text, double precision);
DROP FUNCTION IF EXISTS shiftboss.assign_many(uuid[], text[]);
