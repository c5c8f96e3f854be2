-- requires: vector
-- Entries and results of the journal. Repeating a call changes nothing.

-- The kind of embedding that results of this type contain; NULL if they contain none.
CREATE OR REPLACE FUNCTION journal.embedding_kind(p_task_type text) RETURNS text
LANGUAGE sql IMMUTABLE RETURN
    CASE p_task_type WHEN 'embedding_generation' THEN 'content'
                            WHEN 'context_vectorization' THEN 'context' END;

-- Import entries: [{user_id, external_id, content_hash, written_at, timezone, language, parts, metadata, source}]. A known entry
-- whose content changed gets a new revision. If an id occurs more than once, the last object counts.
CREATE OR REPLACE FUNCTION journal.upsert_entries(p_entries jsonb)
RETURNS TABLE (id uuid, user_id text, external_id text, revision integer, outcome text)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH incoming AS (
        SELECT DISTINCT ON (r.user_id, r.external_id) r.*
        FROM jsonb_array_elements(p_entries) WITH ORDINALITY AS item(value, position),
             jsonb_to_record(item.value) AS r(
                 user_id text, external_id text, content_hash text, written_at timestamptz, timezone text,
                 language text, parts jsonb, metadata jsonb, source jsonb)
        ORDER BY r.user_id, r.external_id, item.position DESC
    ), new_users AS (
        INSERT INTO journal.users AS u (id, timezone, language)
        SELECT DISTINCT ON (i.user_id) i.user_id, i.timezone, coalesce(i.language, 'en')
        FROM incoming i ORDER BY i.user_id, i.written_at
        ON CONFLICT DO NOTHING
    ), before AS (
        SELECT e.id, e.user_id, e.external_id, e.revision, e.content_hash
        FROM incoming i JOIN journal.entries e USING (user_id, external_id)
    ), written AS (
        INSERT INTO journal.entries AS e
            (user_id, external_id, content_hash, written_at, timezone, parts, metadata, source, updated_at)
        SELECT i.user_id, i.external_id, i.content_hash, i.written_at, i.timezone, i.parts, i.metadata, i.source,
               shiftboss.now()
        FROM incoming i
        ORDER BY i.user_id, i.external_id
        ON CONFLICT ON CONSTRAINT entries_user_id_external_id_key DO UPDATE
            SET content_hash = excluded.content_hash, written_at = excluded.written_at,
                timezone = excluded.timezone, parts = excluded.parts, metadata = excluded.metadata,
                source = excluded.source, updated_at = excluded.updated_at, revision = e.revision + 1
            WHERE e.content_hash <> excluded.content_hash
        RETURNING e.id, e.user_id, e.external_id, e.revision
    )
    SELECT w.id, w.user_id, w.external_id, w.revision, CASE w.revision WHEN 1 THEN 'new' ELSE 'changed' END
    FROM written w
    UNION ALL
    SELECT b.id, b.user_id, b.external_id, b.revision, 'same'
    FROM before b
    WHERE NOT EXISTS (SELECT FROM written w WHERE w.id = b.id);
$$;

-- Entries with their current results, {task_type: {input_hash, ...}}, as input of the pipeline.
CREATE OR REPLACE FUNCTION journal.load_entries(p_entries uuid[])
RETURNS TABLE (id uuid, user_id text, external_id text, revision integer, processed_revision integer,
               written_at timestamptz, timezone text, parts jsonb, metadata jsonb, source jsonb, results jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.id, e.user_id, e.external_id, e.revision, e.processed_revision, e.written_at, e.timezone, e.parts,
           e.metadata, e.source,
           coalesce((
               SELECT jsonb_object_agg(r.task_type, jsonb_build_object(
                          'input_hash', r.input_hash, 'processed_data', r.processed_data,
                          'confidence_score', r.confidence_score, 'provider', r.provider, 'model', r.model,
                          'vector', m.vector::text::jsonb))
               FROM journal.results r
               LEFT JOIN journal.embeddings m
                   ON m.entry_id = r.entry_id AND m.kind = journal.embedding_kind(r.task_type)
               WHERE r.entry_id = e.id), '{}')
    FROM unnest(p_entries) WITH ORDINALITY AS wanted(id, place)
    JOIN journal.entries e ON e.id = wanted.id
    ORDER BY wanted.place;
$$;

-- Store results: [{entry_id, revision, task_type, input_hash, processed_data, confidence_score, provider, model, vector}]. Skips
-- objects whose revision is no longer current and results whose input hash is already stored, so repeated reports write each
-- result once. Returns the number of written results.
CREATE OR REPLACE FUNCTION journal.store_results(p_results jsonb) RETURNS integer
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH incoming AS MATERIALIZED (
        SELECT r.*, e.user_id
        FROM jsonb_to_recordset(p_results) AS r(
                 entry_id uuid, revision integer, task_type text, input_hash text, processed_data jsonb,
                 confidence_score double precision, provider text, model text, vector jsonb)
        JOIN journal.entries e ON e.id = r.entry_id AND e.revision = r.revision
        ORDER BY r.entry_id
        FOR SHARE OF e
    ), written AS (
        INSERT INTO journal.results AS old
            (entry_id, task_type, input_hash, processed_data, confidence_score, provider, model, stored_at)
        SELECT i.entry_id, i.task_type, i.input_hash, i.processed_data, i.confidence_score, i.provider, i.model,
               shiftboss.now()
        FROM incoming i
        ON CONFLICT (entry_id, task_type) DO UPDATE
            SET input_hash = excluded.input_hash, processed_data = excluded.processed_data,
                confidence_score = excluded.confidence_score, provider = excluded.provider,
                model = excluded.model, stored_at = excluded.stored_at
            WHERE old.input_hash <> excluded.input_hash
        RETURNING old.entry_id, old.task_type
    ), vectors AS (
        INSERT INTO journal.embeddings AS old (entry_id, kind, user_id, model, dimensions, vector, terms)
        SELECT i.entry_id, journal.embedding_kind(i.task_type), i.user_id, i.model,
               jsonb_array_length(i.vector), i.vector::text::public.vector,
               CASE WHEN jsonb_typeof(i.processed_data -> 'terms') = 'array'
                    THEN ARRAY(SELECT jsonb_array_elements_text(i.processed_data -> 'terms')) END
        FROM incoming i JOIN written USING (entry_id, task_type)
        WHERE jsonb_typeof(i.vector) = 'array'
        ON CONFLICT (entry_id, kind) DO UPDATE
            SET model = excluded.model, dimensions = excluded.dimensions, vector = excluded.vector,
                terms = excluded.terms
    ), outdated AS (  -- a new vector has other neighbours
        DELETE FROM journal.results r USING written w
        WHERE r.entry_id = w.entry_id AND w.task_type = 'embedding_generation'
          AND r.task_type = 'cross_reference_embedding'
    )
    SELECT count(*)::integer FROM written;
$$;

-- Replace the mentions of entries: [{entry_id, revision, mentions: [{kind, key, name, confidence}]}]. Each key of a user has one
-- kind. If a later entry gives it another kind, the entity gets that kind and keeps its mentions.
CREATE OR REPLACE FUNCTION journal.store_mentions(p_mentions jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM journal.lock_users(array_agg((r.value ->> 'entry_id')::uuid)) FROM jsonb_array_elements(p_mentions) r;
    INSERT INTO journal.entities AS old (user_id, kind, key, name)
    SELECT DISTINCT ON (w.user_id, w.key) w.user_id, w.kind, w.key, w.name
    FROM journal.wanted_mentions(p_mentions) w
    ORDER BY w.user_id, w.key, w.kind, w.name
    ON CONFLICT (user_id, key) DO UPDATE SET kind = excluded.kind, name = excluded.name
        WHERE (old.kind, old.name) <> (excluded.kind, excluded.name);

    DELETE FROM journal.mentions m
    USING jsonb_to_recordset(p_mentions) AS r(entry_id uuid, revision integer), journal.entries e
    WHERE e.id = r.entry_id AND e.revision = r.revision AND m.entry_id = e.id
      AND NOT EXISTS (SELECT FROM journal.wanted_mentions(p_mentions) w
                      JOIN journal.entities n ON n.user_id = w.user_id AND n.key = w.key
                      WHERE w.entry_id = m.entry_id AND n.id = m.entity_id);

    INSERT INTO journal.mentions AS old (entity_id, entry_id, confidence)
    SELECT n.id, w.entry_id, max(w.confidence)
    FROM journal.wanted_mentions(p_mentions) w
    JOIN journal.entities n ON n.user_id = w.user_id AND n.key = w.key
    GROUP BY n.id, w.entry_id
    ON CONFLICT (entity_id, entry_id) DO UPDATE SET confidence = excluded.confidence
        WHERE old.confidence <> excluded.confidence;
END;
$$;

-- Lock the users of these entries until the end of the transaction. Writes that concern all entries of a user lock many rows in
-- no fixed order, so two of them at a time could deadlock.
CREATE OR REPLACE FUNCTION journal.lock_users(p_entries uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_user text;
BEGIN
    FOR v_user IN SELECT DISTINCT e.user_id FROM journal.entries e WHERE e.id = ANY (p_entries) ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('journal ' || v_user, 0));
    END LOOP;
END;
$$;

-- The argument of store_mentions as rows, without those of a revision that is no longer current.
CREATE OR REPLACE FUNCTION journal.wanted_mentions(p_mentions jsonb)
RETURNS TABLE (entry_id uuid, user_id text, kind text, key text, name text, confidence double precision)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.id, e.user_id, m.kind, m.key, m.name, m.confidence
    FROM jsonb_to_recordset(p_mentions) AS r(entry_id uuid, revision integer, mentions jsonb)
    JOIN journal.entries e ON e.id = r.entry_id AND e.revision = r.revision
    CROSS JOIN LATERAL jsonb_to_recordset(r.mentions)
        AS m(kind text, key text, name text, confidence double precision);
$$;

-- Record that every stage has analysed this revision of the entry.
CREATE OR REPLACE FUNCTION journal.mark_analysed(p_entry uuid, p_revision integer) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE journal.entries e SET analysed_revision = p_revision
    WHERE e.id = p_entry AND e.revision = p_revision AND e.analysed_revision IS DISTINCT FROM p_revision;
$$;

-- Record that the pipeline has processed these revisions: {entry id: revision}. Skips entries that have changed since or whose
-- current revision is not analysed yet: they still have the results of the previous one. Returns the number of marked entries.
CREATE OR REPLACE FUNCTION journal.mark_processed(p_revisions jsonb) RETURNS integer
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH locked AS MATERIALIZED (
        SELECT e.id
        FROM journal.entries e
        JOIN jsonb_each_text(p_revisions) AS done(id, revision)
            ON e.id = done.id::uuid AND e.revision = done.revision::integer
        WHERE e.processed_revision IS DISTINCT FROM e.revision AND e.analysed_revision = e.revision
        ORDER BY e.id
        FOR NO KEY UPDATE OF e
    ), marked AS (
        UPDATE journal.entries e SET processed_revision = e.revision
        FROM locked WHERE e.id = locked.id
        RETURNING 1)
    SELECT count(*)::integer FROM marked;
$$;

-- Delete the results of one type, so that the next run computes them again, for example with another model. Locks the entries
-- first and in order of id, like store_results.
CREATE OR REPLACE FUNCTION journal.forget_results(p_task_type text, p_user text DEFAULT NULL) RETURNS integer
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH locked AS MATERIALIZED (
        SELECT e.id
        FROM journal.entries e
        WHERE (p_user IS NULL OR e.user_id = p_user)
          AND EXISTS (SELECT FROM journal.results r WHERE r.entry_id = e.id AND r.task_type = p_task_type)
        ORDER BY e.id
        FOR NO KEY UPDATE
    ), reopened AS (
        UPDATE journal.entries e SET processed_revision = NULL, analysed_revision = NULL
        FROM locked WHERE e.id = locked.id
    ), forgotten AS (
        DELETE FROM journal.results r USING locked
        WHERE r.entry_id = locked.id AND r.task_type = p_task_type
        RETURNING r.entry_id)
    SELECT count(*)::integer FROM forgotten;
$$;

-- Entries whose current revision the pipeline has not processed.
CREATE OR REPLACE FUNCTION journal.unprocessed(p_user text DEFAULT NULL)
RETURNS TABLE (id uuid, user_id text, external_id text, revision integer)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.id, e.user_id, e.external_id, e.revision
    FROM journal.entries e
    WHERE e.processed_revision IS DISTINCT FROM e.revision AND (p_user IS NULL OR e.user_id = p_user)
    ORDER BY e.user_id, e.written_at;
$$;

CREATE OR REPLACE FUNCTION journal.store_user_result(
    p_user text, p_task_type text, p_input_hash text, p_processed_data jsonb, p_confidence_score double precision,
    p_provider text DEFAULT NULL, p_model text DEFAULT NULL)
RETURNS boolean LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH written AS (
        INSERT INTO journal.user_results AS old
            (user_id, task_type, input_hash, processed_data, confidence_score, provider, model, stored_at)
        VALUES (p_user, p_task_type, p_input_hash, p_processed_data, p_confidence_score, p_provider, p_model,
                shiftboss.now())
        ON CONFLICT (user_id, task_type) DO UPDATE
            SET input_hash = excluded.input_hash, processed_data = excluded.processed_data,
                confidence_score = excluded.confidence_score, provider = excluded.provider,
                model = excluded.model, stored_at = excluded.stored_at
            WHERE old.input_hash <> excluded.input_hash
        RETURNING 1)
    SELECT EXISTS (SELECT FROM written);
$$;

-- Replace the insights of a user by [{key, kind, text, confidence, evidence}]. An existing insight keeps its found_at. If a key
-- occurs more than once, the object with the highest confidence counts.
CREATE OR REPLACE FUNCTION journal.store_insights(p_user text, p_insights jsonb) RETURNS integer
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM journal.insights i
        WHERE i.user_id = p_user
          AND i.key NOT IN (SELECT n.value ->> 'key' FROM jsonb_array_elements(p_insights) AS n(value))
    ), written AS (
        INSERT INTO journal.insights AS old (user_id, key, kind, text, confidence, evidence, found_at)
        SELECT DISTINCT ON (n.key) p_user, n.key, n.kind, n.text, n.confidence, coalesce(n.evidence, '[]'), shiftboss.now()
        FROM jsonb_to_recordset(p_insights) AS n(
            key text, kind text, text text, confidence double precision, evidence jsonb)
        ORDER BY n.key, n.confidence DESC
        ON CONFLICT (user_id, key) DO UPDATE
            SET kind = excluded.kind, text = excluded.text, confidence = excluded.confidence,
                evidence = excluded.evidence
            WHERE (old.kind, old.text, old.confidence, old.evidence)
                  IS DISTINCT FROM (excluded.kind, excluded.text, excluded.confidence, excluded.evidence)
        RETURNING 1)
    SELECT count(*)::integer FROM written;
$$;
