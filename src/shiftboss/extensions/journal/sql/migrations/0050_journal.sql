-- requires: vector
-- The journal: what people wrote, what the pipeline found in it, and how it hangs together.
--
-- An entry has a revision that grows when its content changes. Every analysis of it is one row in `results`
-- with the hash of what it was made from, so work is redone only where its input changed, and a result that
-- comes late from an older revision changes nothing. People, places and concepts are facts in `mentions`;
-- relations between them are a view over those facts, so they can not go stale.

CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA IF NOT EXISTS journal;

CREATE TABLE IF NOT EXISTS journal.users (
    id          text PRIMARY KEY CHECK (id <> ''),
    timezone    text NOT NULL DEFAULT 'UTC',
    language    text NOT NULL DEFAULT 'en',
    preferences jsonb NOT NULL DEFAULT '{"analysis_depth": "detailed", "privacy_level": "private"}',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE IF NOT EXISTS journal.entries (
    id                 uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id            text NOT NULL REFERENCES journal.users ON DELETE CASCADE,
    external_id        text NOT NULL CHECK (external_id <> ''),
    revision           integer NOT NULL DEFAULT 1,
    processed_revision integer,
    content_hash       text NOT NULL,
    written_at         timestamptz NOT NULL,
    timezone           text NOT NULL DEFAULT 'UTC',
    parts              jsonb NOT NULL CHECK (jsonb_typeof(parts) = 'array'),
    metadata           jsonb NOT NULL DEFAULT '{}',
    source             jsonb NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (user_id, external_id)
);
CREATE INDEX IF NOT EXISTS entries_by_time ON journal.entries (user_id, written_at);
CREATE INDEX IF NOT EXISTS entries_unprocessed ON journal.entries (user_id)
    WHERE processed_revision IS DISTINCT FROM revision;

CREATE TABLE IF NOT EXISTS journal.results (
    entry_id         uuid NOT NULL REFERENCES journal.entries ON DELETE CASCADE,
    task_type        text NOT NULL,
    input_hash       text NOT NULL,
    processed_data   jsonb NOT NULL,
    confidence_score double precision NOT NULL CHECK (confidence_score BETWEEN 0 AND 1),
    provider         text,
    model            text,
    stored_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (entry_id, task_type)
);

CREATE TABLE IF NOT EXISTS journal.user_results (
    user_id          text NOT NULL REFERENCES journal.users ON DELETE CASCADE,
    task_type        text NOT NULL,
    input_hash       text NOT NULL,
    processed_data   jsonb NOT NULL,
    confidence_score double precision NOT NULL CHECK (confidence_score BETWEEN 0 AND 1),
    provider         text,
    model            text,
    stored_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (user_id, task_type)
);

-- `content` is the embedding of the words, `context` that of mood, time, themes and activities. Vectors of any
-- length may be stored; those of the default length have an index (see journal.index_dimensions for others).
CREATE TABLE IF NOT EXISTS journal.embeddings (
    entry_id   uuid NOT NULL REFERENCES journal.entries ON DELETE CASCADE,
    kind       text NOT NULL CHECK (kind IN ('content', 'context')),
    user_id    text NOT NULL,
    model      text NOT NULL,
    dimensions integer NOT NULL,
    vector     vector NOT NULL,
    PRIMARY KEY (entry_id, kind)
);
CREATE INDEX IF NOT EXISTS embeddings_by_user ON journal.embeddings (user_id, kind);
CREATE INDEX IF NOT EXISTS embeddings_hnsw_256 ON journal.embeddings
    USING hnsw ((vector::vector(256)) vector_cosine_ops) WHERE kind = 'content' AND dimensions = 256;

CREATE TABLE IF NOT EXISTS journal.entities (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id text NOT NULL REFERENCES journal.users ON DELETE CASCADE,
    kind    text NOT NULL CHECK (kind IN ('person', 'place', 'concept')),
    key     text NOT NULL,
    name    text NOT NULL,
    UNIQUE (user_id, key)
);

CREATE TABLE IF NOT EXISTS journal.mentions (
    entity_id  bigint NOT NULL REFERENCES journal.entities ON DELETE CASCADE,
    entry_id   uuid NOT NULL REFERENCES journal.entries ON DELETE CASCADE,
    confidence double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    PRIMARY KEY (entity_id, entry_id)
);
CREATE INDEX IF NOT EXISTS mentions_by_entry ON journal.mentions (entry_id);

-- One row per pair, smaller id first: either entry sees the other.
CREATE TABLE IF NOT EXISTS journal.cross_references (
    entry_id   uuid NOT NULL REFERENCES journal.entries ON DELETE CASCADE,
    other_id   uuid NOT NULL REFERENCES journal.entries ON DELETE CASCADE,
    similarity double precision NOT NULL,
    PRIMARY KEY (entry_id, other_id),
    CHECK (entry_id < other_id)
);
CREATE INDEX IF NOT EXISTS cross_references_by_other ON journal.cross_references (other_id);

CREATE TABLE IF NOT EXISTS journal.insights (
    user_id    text NOT NULL REFERENCES journal.users ON DELETE CASCADE,
    key        text NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('pattern', 'trend', 'anomaly', 'relationship', 'recommendation')),
    text       text NOT NULL,
    confidence double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    evidence   jsonb NOT NULL DEFAULT '[]',
    found_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (user_id, key)
);
