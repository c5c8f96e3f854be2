-- requires: vector
-- The index for the vectors of the local multilingual model.
CREATE INDEX IF NOT EXISTS embeddings_hnsw_896 ON journal.embeddings
    USING hnsw ((vector::vector(896)) vector_cosine_ops) WHERE kind = 'content' AND dimensions = 896;
