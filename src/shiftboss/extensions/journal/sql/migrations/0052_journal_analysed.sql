-- requires: vector
-- The revision whose every stage is through: only such an entry may be called processed, whoever works at its writer.
ALTER TABLE journal.entries ADD COLUMN IF NOT EXISTS analysed_revision integer;
UPDATE journal.entries SET analysed_revision = processed_revision
WHERE analysed_revision IS NULL AND processed_revision IS NOT NULL;
