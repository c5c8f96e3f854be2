-- Search from SQL: ai.embed_query requests an embedding, a worker makes it, ai.search_query (52_search.sql) searches.

-- Request the embedding of a text by the vectorizer's model. Returns the id of the request, which is kept for an hour.
CREATE OR REPLACE FUNCTION ai.embed_query(vectorizer anycompatible, query text) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer := ai._named(vectorizer);
    v_id bigint;
BEGIN
    IF query IS NULL OR btrim(query) = '' THEN
        RAISE EXCEPTION 'the text to embed is empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM ai._vectorizer_query q WHERE q.asked_at < shiftboss.now() - interval '1 hour';
    INSERT INTO ai._vectorizer_query (vectorizer_id, generation, query, asked_at)
    VALUES (coalesce(v.replaces, v.id), v.generation, embed_query.query, shiftboss.now()) RETURNING id INTO v_id;
    PERFORM pg_notify('shiftboss_vectorizers', '');
    RETURN v_id;
END $$;

-- Claim open requests, of all vectorizers or of p_vectorizers, or those with p_ids.
DROP FUNCTION IF EXISTS ai._queries_claim(int[], interval);
CREATE OR REPLACE FUNCTION ai._queries_claim(p_vectorizers int[], p_lease interval, p_ids bigint[] DEFAULT NULL)
RETURNS TABLE (id bigint, vectorizer_id int, query text) LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE ai._vectorizer_query q SET claimed_until = shiftboss.now() + p_lease
    WHERE q.id IN (SELECT o.id FROM ai._vectorizer_query o
                   WHERE o.embedding IS NULL AND o.error IS NULL AND coalesce(o.claimed_until, '-infinity') <= shiftboss.now()
                     AND (p_vectorizers IS NULL OR o.vectorizer_id = ANY (p_vectorizers))
                     AND (p_ids IS NULL OR o.id = ANY (p_ids))
                   ORDER BY o.id LIMIT 100 FOR UPDATE SKIP LOCKED)
    RETURNING q.id, q.vectorizer_id, q.query
$$;

-- Store the embedding or the error of a request. p_generation identifies the vectors that the embedding can be compared with.
CREATE OR REPLACE FUNCTION ai._query_answer(p_id bigint, p_generation int, p_embedding real[], p_error text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE ai._vectorizer_query SET generation = p_generation, embedding = p_embedding, error = p_error WHERE id = p_id
$$;
