-- requires: vector
-- Queries: history, search, cross-references, mood over time, status.

-- The analysed entries of a user, oldest first, with the results that the context stages use.
CREATE OR REPLACE FUNCTION journal.history(p_user text)
RETURNS TABLE (id uuid, external_id text, revision integer, written_at timestamptz, timezone text, location text,
               language text, text text, mood double precision, mood_confidence double precision,
               emotions jsonb, topics jsonb, themes jsonb, activities jsonb, entities jsonb, hashes jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.id, e.external_id, e.revision, e.written_at, e.timezone, e.metadata ->> 'location',
           r.found #>> '{data_normalization,language}',
           r.found #>> '{multimodal_integration,full_text}',
           o.mood, o.confidence,
           r.found #> '{emotion_detection,emotions}',
           r.found #> '{theme_identification,topic_distribution}',
           r.found #> '{theme_identification,primary_themes}',
           r.found #> '{activity_recognition,activities}',
           r.found #> '{content_extraction,entities}',
           r.hashes
    FROM journal.entries e
    CROSS JOIN LATERAL (
        SELECT jsonb_object_agg(x.task_type, x.processed_data) AS found,
               jsonb_object_agg(x.task_type, x.input_hash) AS hashes
        FROM journal.results x WHERE x.entry_id = e.id) r
    JOIN journal.moods o ON o.entry_id = e.id
    WHERE e.user_id = p_user AND r.found ? 'content_extraction'
      AND r.found ? 'theme_identification' AND r.found ? 'emotion_detection'
      AND r.found ? 'activity_recognition' AND r.found ? 'embedding_generation'
    ORDER BY e.written_at, e.external_id;
$$;

-- The entries most similar to a query, best first. Without terms, similarity is the cosine. With terms, it is ten parts cosine,
-- three parts the share of the terms that the entry contains, where rare terms weigh more, divided by the square root of their
-- number (a long query is told by its meaning, a name by itself), and two parts the same language (a term that begins with
-- "#"). If the filter leaves at most 10,000 entries, all of them are compared, which is exact and faster
-- than an index scan that discards most rows. Otherwise the HNSW index selects the candidates, and a higher p_ef_search improves
-- recall at the cost of speed.
DROP FUNCTION IF EXISTS journal.search(public.vector, text, text, integer, timestamptz, timestamptz, integer);
CREATE OR REPLACE FUNCTION journal.search(
    p_query public.vector, p_model text, p_user text DEFAULT NULL, p_limit integer DEFAULT 10,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL, p_ef_search integer DEFAULT 200,
    p_terms text[] DEFAULT NULL)
RETURNS TABLE (id uuid, user_id text, external_id text, written_at timestamptz, timezone text,
               similarity double precision, excerpt text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_filter text := concat_ws(' AND ', 'true',
        CASE WHEN p_user IS NOT NULL THEN 'e.user_id = $3' END,
        CASE WHEN p_since IS NOT NULL THEN 'e.written_at >= $4' END,
        CASE WHEN p_until IS NOT NULL THEN 'e.written_at < $5' END);
    -- The length of the vector is part of the index expression, so it cannot be a parameter.
    v_distance text := format('(m.vector::public.vector(%1$s) OPERATOR(public.<=>) $1::public.vector(%1$s))',
                              public.vector_dims(p_query));
    v_few boolean;
BEGIN
    EXECUTE format('SELECT count(*) <= 10000 FROM (SELECT FROM journal.entries e WHERE %s LIMIT 10001) x', v_filter)
        INTO v_few USING p_query, p_model, p_user, p_since, p_until;
    PERFORM set_config('hnsw.ef_search', least(1000, greatest(p_limit, p_ef_search))::text, true),
            set_config('hnsw.iterative_scan', 'strict_order', true);
    RETURN QUERY EXECUTE format($query$
        WITH near AS MATERIALIZED (
            SELECT e.id, e.user_id, e.external_id, e.written_at, e.timezone, m.terms, 1 - %2$s AS cosine,
                   e.parts -> 0 ->> 'content' AS content
            FROM journal.embeddings m
            JOIN journal.entries e ON e.id = m.entry_id
            WHERE m.kind = 'content' AND m.dimensions = %1$s AND m.model = $2 AND %3$s %4$s
        ), hits AS (
            SELECT n.id, t.term FROM near n CROSS JOIN unnest(n.terms) AS t(term)
            WHERE t.term = ANY ($7) AND t.term NOT LIKE '#%%'
        ), asked AS (
            SELECT a.term, ln(1 + (SELECT count(*) FROM near) / (0.5 + count(h.id))) AS weight
            FROM unnest($7) AS a(term) LEFT JOIN hits h ON h.term = a.term
            WHERE a.term NOT LIKE '#%%' GROUP BY a.term
        ), shared AS (
            SELECT h.id, sum(a.weight) / (SELECT sum(w.weight) * sqrt(count(*)) FROM asked w) AS share
            FROM hits h JOIN asked a ON a.term = h.term GROUP BY h.id
        )
        SELECT n.id, n.user_id, n.external_id, n.written_at, n.timezone,
               CASE WHEN $7 IS NULL THEN n.cosine ELSE (10 * n.cosine + 3 * coalesce(s.share, 0)
                    + 2 * coalesce((n.terms && (SELECT array_agg(l) FROM unnest($7) l WHERE l LIKE '#%%'))::int, 0)) / 15 END,
               CASE WHEN length(n.content) > 160  -- end at a word
                    THEN regexp_replace(left(n.content, 160), '\s+\S*$', '') || ' …' ELSE n.content END
        FROM near n LEFT JOIN shared s ON s.id = n.id
        ORDER BY 6 DESC, n.id
        LIMIT $6 $query$, public.vector_dims(p_query), v_distance, v_filter,
        CASE WHEN NOT v_few THEN format('ORDER BY %s LIMIT greatest($6, CASE WHEN $7 IS NULL THEN 0 ELSE 200 END)', v_distance) END)
    USING p_query, p_model, p_user, p_since, p_until, p_limit, p_terms;
END;
$$;

-- Create the index for vectors of this length if it does not exist. pgvector indexes at most 2,000 dimensions; longer vectors are
-- compared one by one. Callers call this for every such vector: if the index exists, it takes no lock.
CREATE OR REPLACE FUNCTION journal.index_dimensions(p_dimensions integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_dimensions > 2000 OR to_regclass(format('journal.embeddings_hnsw_%s', p_dimensions)) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('journal index', 0));
    EXECUTE format(
        'CREATE INDEX IF NOT EXISTS embeddings_hnsw_%1$s ON journal.embeddings '
        'USING hnsw ((vector::public.vector(%1$s)) public.vector_cosine_ops) WHERE kind = ''content'' AND dimensions = %1$s',
        p_dimensions);
END;
$$;

-- Recompute the cross-references of these entries to the most similar entries of the same user. Similarity is 0.75 times that of
-- the content plus 0.25 times that of the context. Returns the number of references.
CREATE OR REPLACE FUNCTION journal.link_entries(p_entries uuid[], p_count integer DEFAULT 8) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_links integer;
BEGIN
    PERFORM journal.lock_users(p_entries);
    DELETE FROM journal.cross_references r WHERE r.entry_id = ANY (p_entries) OR r.other_id = ANY (p_entries);
    INSERT INTO journal.cross_references (entry_id, other_id, similarity)
    SELECT least(a.entry_id, n.other_id), greatest(a.entry_id, n.other_id), max(n.similarity)
    FROM journal.embeddings a
    JOIN journal.embeddings ac ON ac.entry_id = a.entry_id AND ac.kind = 'context'
    CROSS JOIN LATERAL (
        SELECT b.entry_id AS other_id,
               0.75 * (1 - (a.vector OPERATOR(public.<=>) b.vector)) + 0.25 * (1 - (ac.vector OPERATOR(public.<=>) bc.vector)) AS similarity
        FROM journal.embeddings b
        JOIN journal.embeddings bc ON bc.entry_id = b.entry_id AND bc.kind = 'context'
        WHERE b.user_id = a.user_id AND b.kind = 'content' AND b.entry_id <> a.entry_id
          AND b.model = a.model AND b.dimensions = a.dimensions AND bc.model = ac.model
        ORDER BY similarity DESC, b.entry_id
        LIMIT p_count) n
    WHERE a.entry_id = ANY (p_entries) AND a.kind = 'content'
    GROUP BY 1, 2
    ON CONFLICT (entry_id, other_id) DO UPDATE SET similarity = excluded.similarity;
    GET DIAGNOSTICS v_links = ROW_COUNT;
    RETURN v_links;
END;
$$;

-- The best cross-references of each entry of a user, in both directions.
CREATE OR REPLACE FUNCTION journal.references_of(p_user text, p_count integer DEFAULT 5)
RETURNS TABLE (entry_id uuid, other_id uuid, external_id text, written_at timestamptz, similarity double precision)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT x.entry_id, x.other_id, x.external_id, x.written_at, x.similarity
    FROM (
        SELECT s.entry_id, s.other_id, o.external_id, o.written_at, s.similarity,
               row_number() OVER (PARTITION BY s.entry_id ORDER BY s.similarity DESC, s.other_id) AS place
        FROM (SELECT r.entry_id, r.other_id, r.similarity FROM journal.cross_references r
              UNION ALL
              SELECT r.other_id, r.entry_id, r.similarity FROM journal.cross_references r) s
        JOIN journal.entries e ON e.id = s.entry_id
        JOIN journal.entries o ON o.id = s.other_id
        WHERE e.user_id = p_user) x
    WHERE x.place <= p_count
    ORDER BY x.entry_id, x.place;
$$;

-- Mood over time: one row per 'day', 'week', 'month', 'quarter' or 'year', in the time zone of each entry.
CREATE OR REPLACE FUNCTION journal.mood(p_user text, p_bucket text DEFAULT 'month')
RETURNS TABLE (period date, entries bigint, mood double precision, lowest double precision,
               highest double precision)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT date_trunc(p_bucket, m.local_time)::date, count(*), avg(m.mood), min(m.mood), max(m.mood)
    FROM journal.moods m
    WHERE m.user_id = p_user
    GROUP BY 1 ORDER BY 1;
END;
$$;

CREATE OR REPLACE FUNCTION journal.status()
RETURNS TABLE (user_id text, entries bigint, processed bigint, results bigint, people bigint, places bigint,
               concepts bigint, insights bigint, first_written timestamptz, last_written timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT u.id, count(e.id), count(e.id) FILTER (WHERE e.processed_revision = e.revision),
           (SELECT count(*) FROM journal.results r JOIN journal.entries x ON x.id = r.entry_id WHERE x.user_id = u.id),
           n.people, n.places, n.concepts,
           (SELECT count(*) FROM journal.insights i WHERE i.user_id = u.id), min(e.written_at), max(e.written_at)
    FROM journal.users u
    LEFT JOIN journal.entries e ON e.user_id = u.id
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE t.kind = 'person') AS people,
               count(*) FILTER (WHERE t.kind = 'place') AS places,
               count(*) FILTER (WHERE t.kind = 'concept') AS concepts
        FROM journal.entities t
        WHERE t.user_id = u.id AND EXISTS (SELECT FROM journal.mentions m WHERE m.entity_id = t.id)) n
    GROUP BY u.id, n.people, n.places, n.concepts
    ORDER BY u.id;
$$;

-- The entries with this id or external id, of p_user or of all users.
CREATE OR REPLACE FUNCTION journal.find_entries(p_ident text, p_user text DEFAULT NULL)
RETURNS TABLE (id uuid, user_id text, external_id text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.id, e.user_id, e.external_id
    FROM journal.entries e
    WHERE (e.external_id = p_ident OR e.id::text = lower(p_ident)) AND (p_user IS NULL OR e.user_id = p_user)
    ORDER BY e.user_id;
$$;

-- Entries, newest first, each with its title, mood, main emotion and themes.
CREATE OR REPLACE FUNCTION journal.list_entries(
    p_user text DEFAULT NULL, p_limit integer DEFAULT 50, p_offset integer DEFAULT 0)
RETURNS TABLE (id uuid, user_id text, external_id text, written_at timestamptz, timezone text, revision integer,
               processed boolean, title text, mood double precision, emotion text, themes jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.id, e.user_id, e.external_id, e.written_at, e.timezone, e.revision,
           e.processed_revision IS NOT DISTINCT FROM e.revision,
           n.processed_data ->> 'title', (s.processed_data #>> '{overall_sentiment,score}')::double precision,
           f.processed_data ->> 'dominant_emotion',
           (SELECT jsonb_agg(x.value -> 'theme') FROM jsonb_array_elements(t.processed_data -> 'primary_themes') x)
    FROM journal.entries e
    LEFT JOIN journal.results n ON n.entry_id = e.id AND n.task_type = 'data_normalization'
    LEFT JOIN journal.results s ON s.entry_id = e.id AND s.task_type = 'sentiment_analysis'
    LEFT JOIN journal.results f ON f.entry_id = e.id AND f.task_type = 'emotion_detection'
    LEFT JOIN journal.results t ON t.entry_id = e.id AND t.task_type = 'theme_identification'
    WHERE p_user IS NULL OR e.user_id = p_user
    ORDER BY e.written_at DESC, e.id
    LIMIT p_limit OFFSET p_offset;
$$;
