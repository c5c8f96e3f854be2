-- An attempt whose worker went down with it can end as `interrupted`: not spent, as another task is, or may be, to blame.
ALTER TABLE shiftboss.past_attempts DROP CONSTRAINT IF EXISTS past_attempts_outcome_check;
ALTER TABLE shiftboss.past_attempts ADD CONSTRAINT past_attempts_outcome_check CHECK (outcome IN ('complete', 'failed', 'timeout',
    'lost', 'crashed', 'deferred', 'released', 'interrupted', 'cancelled')) NOT VALID;  -- the old one held for every row
