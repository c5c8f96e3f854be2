-- Vectorizers: what is embedded, how, and where to. Each has a queue table of its own (ai._queue_<generation>) with one
-- row per changed source row; it is made by ai.create_vectorizer, as are the target table, its triggers and its view.
-- pgvector is needed only once a vectorizer is made.

CREATE SEQUENCE IF NOT EXISTS ai._generation AS int;
CREATE SEQUENCE IF NOT EXISTS ai._ticket;

ALTER TABLE ai.vectorizer
    ADD COLUMN IF NOT EXISTS name text CHECK (name <> ''),
    ADD COLUMN IF NOT EXISTS generation int,          -- names the queue, the trigger function and the triggers
    ADD COLUMN IF NOT EXISTS replaces int4 REFERENCES ai.vectorizer (id) ON DELETE CASCADE,
    ADD COLUMN IF NOT EXISTS key_columns text[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS key_types text[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS columns text[],
    ADD COLUMN IF NOT EXISTS template text,
    ADD COLUMN IF NOT EXISTS watched text[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS chunking text NOT NULL DEFAULT 'sentences'
        CONSTRAINT vectorizer_chunking_word CHECK (chunking IN ('sentences', 'characters', 'none')),
    ADD COLUMN IF NOT EXISTS chunk_size int NOT NULL DEFAULT 800
        CONSTRAINT vectorizer_chunk_size_range CHECK (chunk_size BETWEEN 1 AND 1000000),
    ADD COLUMN IF NOT EXISTS chunk_overlap int NOT NULL DEFAULT 100,
    ADD COLUMN IF NOT EXISTS provider text NOT NULL DEFAULT 'local',
    ADD COLUMN IF NOT EXISTS model text,
    ADD COLUMN IF NOT EXISTS dimensions int NOT NULL DEFAULT 256
        CONSTRAINT vectorizer_dimensions_range CHECK (dimensions BETWEEN 1 AND 16000),
    ADD COLUMN IF NOT EXISTS index_method text NOT NULL DEFAULT 'hnsw'
        CONSTRAINT vectorizer_index_word CHECK (index_method IN ('hnsw', 'none')),
    ADD COLUMN IF NOT EXISTS target_table regclass,
    ADD COLUMN IF NOT EXISTS target_view regclass,
    ADD COLUMN IF NOT EXISTS schedule interval CHECK (schedule > interval '0'),
    ADD COLUMN IF NOT EXISTS batch_size int NOT NULL DEFAULT 256
        CONSTRAINT vectorizer_batch_size_range CHECK (batch_size BETWEEN 1 AND 10000),
    ADD COLUMN IF NOT EXISTS concurrency int NOT NULL DEFAULT 4
        CONSTRAINT vectorizer_concurrency_range CHECK (concurrency BETWEEN 1 AND 1000),
    ADD COLUMN IF NOT EXISTS paused boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS next_run_at timestamptz,
    ADD COLUMN IF NOT EXISTS deferred_until timestamptz,
    ADD COLUMN IF NOT EXISTS defer_reason text,
    ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT shiftboss.now();

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'vectorizer_overlap_range') THEN
        ALTER TABLE ai.vectorizer ADD CONSTRAINT vectorizer_overlap_range
            CHECK (chunk_overlap >= 0 AND (chunk_overlap < chunk_size OR chunking = 'none'));
        ALTER TABLE ai.vectorizer ADD CONSTRAINT vectorizer_text_given
            CHECK (generation IS NULL OR columns IS NOT NULL OR template IS NOT NULL);
    END IF;
END $$;
CREATE UNIQUE INDEX IF NOT EXISTS vectorizer_name ON ai.vectorizer (name) WHERE replaces IS NULL;
CREATE UNIQUE INDEX IF NOT EXISTS vectorizer_replaces ON ai.vectorizer (replaces) WHERE replaces IS NOT NULL;

-- Rows that failed: those still retried, and those given up (final), which wait for ai.retry_vectorizer.
CREATE TABLE IF NOT EXISTS ai._vectorizer_error (
    vectorizer_id int4 NOT NULL REFERENCES ai.vectorizer (id) ON DELETE CASCADE,
    key jsonb NOT NULL,
    step text NOT NULL,
    reason text NOT NULL,
    attempts int NOT NULL,
    final boolean NOT NULL,
    failed_at timestamptz NOT NULL,
    PRIMARY KEY (vectorizer_id, key)
);

-- What was done, a row per minute for the last hour: the rate and the time left come from it.
CREATE TABLE IF NOT EXISTS ai._vectorizer_minute (
    vectorizer_id int4 NOT NULL REFERENCES ai.vectorizer (id) ON DELETE CASCADE,
    minute timestamptz NOT NULL,
    first_at timestamptz NOT NULL,
    row_count bigint NOT NULL,
    chunk_count bigint NOT NULL,
    PRIMARY KEY (vectorizer_id, minute)
);
