-- Per vectorizer: where its provider is, how its texts are cut, how its vectors are indexed; and questions to embed.

ALTER TABLE ai.vectorizer
    ADD COLUMN IF NOT EXISTS view_name text,           -- of the joining view, for when the view itself is gone
    ADD COLUMN IF NOT EXISTS detached jsonb,           -- what ai.attach_vectorizer needs to know; NULL while attached
    ADD COLUMN IF NOT EXISTS send_dimensions boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS base_url text,
    ADD COLUMN IF NOT EXISTS api_key_name text,
    ADD COLUMN IF NOT EXISTS separators text[],
    ADD COLUMN IF NOT EXISTS text_search text,         -- not regconfig: pg_upgrade refuses tables with such a column
    ADD COLUMN IF NOT EXISTS index_opclass text NOT NULL DEFAULT 'vector_cosine_ops',
    ADD COLUMN IF NOT EXISTS index_options jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS index_min_rows int CHECK (index_min_rows >= 0),
    ADD COLUMN IF NOT EXISTS index_due boolean NOT NULL DEFAULT false;

ALTER TABLE ai.vectorizer DROP CONSTRAINT IF EXISTS vectorizer_chunking_word;
ALTER TABLE ai.vectorizer ADD CONSTRAINT vectorizer_chunking_word
    CHECK (chunking IN ('sentences', 'characters', 'separators', 'tokens', 'markdown', 'none'));
ALTER TABLE ai.vectorizer DROP CONSTRAINT IF EXISTS vectorizer_index_word;
ALTER TABLE ai.vectorizer ADD CONSTRAINT vectorizer_index_word CHECK (index_method IN ('hnsw', 'ivfflat', 'none'));

-- Questions asked with SQL alone; a worker embeds them.
CREATE TABLE IF NOT EXISTS ai._vectorizer_query (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    vectorizer_id int4 NOT NULL REFERENCES ai.vectorizer (id) ON DELETE CASCADE,
    generation int NOT NULL,                           -- whose vectors the answer can be compared with
    query text NOT NULL,
    asked_at timestamptz NOT NULL,
    claimed_until timestamptz,
    embedding real[],
    error text
);
CREATE INDEX IF NOT EXISTS vectorizer_query_open ON ai._vectorizer_query (vectorizer_id)
    WHERE embedding IS NULL AND error IS NULL;
CREATE INDEX IF NOT EXISTS vectorizer_query_asked_at ON ai._vectorizer_query (asked_at);
