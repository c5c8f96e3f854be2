-- Who set a limit, and what the code of the workers declares for the task type.
ALTER TABLE shiftboss.limits ADD COLUMN IF NOT EXISTS set_by text NOT NULL DEFAULT 'operator'
    CONSTRAINT limits_set_by_word CHECK (set_by IN ('operator', 'code'));
ALTER TABLE shiftboss.limits ADD COLUMN IF NOT EXISTS code jsonb;
