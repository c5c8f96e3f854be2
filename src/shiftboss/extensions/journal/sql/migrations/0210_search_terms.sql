-- requires: vector
-- What an entry is found by besides its vector: stems, labels and concepts. NULL where the embedding is older.
ALTER TABLE journal.embeddings ADD COLUMN IF NOT EXISTS terms text[];
