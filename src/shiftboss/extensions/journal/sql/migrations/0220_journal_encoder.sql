-- requires: vector
-- The index for the vectors of the local sentence encoder.
CREATE INDEX IF NOT EXISTS embeddings_hnsw_384 ON journal.embeddings
    USING hnsw ((vector::vector(384)) vector_cosine_ops) WHERE kind = 'content' AND dimensions = 384;
