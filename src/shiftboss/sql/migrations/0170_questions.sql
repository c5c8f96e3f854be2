-- Waits for a person: what is asked, the JSON Schema that the answer must satisfy, and who gave it.
ALTER TABLE shiftboss.steps ADD COLUMN IF NOT EXISTS question text;
ALTER TABLE shiftboss.steps ADD COLUMN IF NOT EXISTS schema jsonb;
ALTER TABLE shiftboss.steps ADD COLUMN IF NOT EXISTS answered_by text;
CREATE INDEX IF NOT EXISTS steps_question ON shiftboss.steps (started_at) WHERE state = 'waiting' AND question IS NOT NULL;
