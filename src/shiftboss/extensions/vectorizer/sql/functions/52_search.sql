-- requires: vector
-- Search by vector, by words, or by both. Each method ranks its candidates; the score of a chunk is the sum of 1 / (60 + rank)
-- (reciprocal rank fusion). All functions return distance (NULL for words alone), key, chunk_seq, chunk, the source row and the
-- score, best first.

DROP FUNCTION IF EXISTS ai.search_vectorizer(anycompatible, vector, int);
CREATE OR REPLACE FUNCTION ai.search_vectorizer(
    vectorizer anycompatible, query vector, max_results int DEFAULT 10, filter jsonb DEFAULT NULL, query_text text DEFAULT NULL
) RETURNS TABLE (distance float8, key jsonb, chunk_seq int, chunk text, source jsonb, score float8) LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT f.* FROM ai._named(vectorizer) v, ai._search(coalesce(v.replaces, v.id), NULL, query, query_text, max_results, filter) f
$$;

-- Search by words. The query can contain "quoted phrases", or, and -excluded words.
CREATE OR REPLACE FUNCTION ai.search_text(
    vectorizer anycompatible, query text, max_results int DEFAULT 10, filter jsonb DEFAULT NULL
) RETURNS TABLE (distance float8, key jsonb, chunk_seq int, chunk text, source jsonb, score float8) LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT f.* FROM ai._named(vectorizer) v, ai._search(coalesce(v.replaces, v.id), NULL, NULL, query, max_results, filter) f
$$;

-- Search with the embedding of an ai.embed_query request, waiting for it if needed. hybrid also searches by its words.
CREATE OR REPLACE FUNCTION ai.search_query(
    request bigint, max_results int DEFAULT 10, filter jsonb DEFAULT NULL, hybrid boolean DEFAULT false
) RETURNS TABLE (distance float8, key jsonb, chunk_seq int, chunk text, source jsonb, score float8) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    q ai._vectorizer_query;
BEGIN
    PERFORM ai.query_embedding(request);
    SELECT * INTO q FROM ai._vectorizer_query x WHERE x.id = request;
    RETURN QUERY SELECT * FROM ai._search(q.vectorizer_id, q.generation, ai.query_embedding(request),
                                          CASE WHEN hybrid THEN q.query END, max_results, filter);
END $$;

-- The embedding of an ai.embed_query request. Waits until a worker has made it.
CREATE OR REPLACE FUNCTION ai.query_embedding(request bigint, timeout interval DEFAULT '30 seconds') RETURNS vector
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q ai._vectorizer_query;
    v_until timestamptz := clock_timestamp() + timeout;
BEGIN
    LOOP
        SELECT * INTO q FROM ai._vectorizer_query x WHERE x.id = request;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no request %', request USING ERRCODE = 'no_data_found',
                HINT = 'Create one with SELECT ai.embed_query(vectorizer, text). Requests are kept for an hour.';
        ELSIF q.error IS NOT NULL THEN
            RAISE EXCEPTION 'cannot embed request %: %', request, q.error USING ERRCODE = 'external_routine_exception';
        ELSIF q.embedding IS NOT NULL THEN
            RETURN q.embedding;
        ELSIF clock_timestamp() > v_until THEN
            RAISE EXCEPTION 'no worker has embedded request % within %', request, timeout USING ERRCODE = 'query_canceled',
                HINT = 'Run `shiftboss vectorizer worker`, and commit ai.embed_query before this statement.';
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
END $$;

-- SQL conditions on the source (s) for a filter such as {"lang": "en", "hits": {">=": 5, "<": 9}, "tag": ["a", "b"],
-- "gone": null}: equal, compared, one of, NULL. The filter itself is the parameter $3.
CREATE OR REPLACE FUNCTION ai._filter_sql(v ai.vectorizer, p_filter jsonb) RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    c record;
    v_parts text[] := '{}';
BEGIN
    FOR c IN SELECT f.key, f.value, a.attname, format_type(a.atttypid, NULL) AS type
             FROM jsonb_each(p_filter) f LEFT JOIN pg_attribute a
             ON a.attrelid = v.source_table AND a.attname = f.key AND a.attnum > 0 AND NOT a.attisdropped LOOP
        IF c.attname IS NULL THEN
            RAISE EXCEPTION 'table % has no column "%"', v.source_table, c.key USING ERRCODE = 'undefined_column',
                HINT = 'Use columns of the source table as keys of the filter.';
        END IF;
        v_parts := v_parts || CASE jsonb_typeof(c.value)
            WHEN 'null' THEN format('s.%I IS NULL', c.key)
            WHEN 'array' THEN format('s.%I = ANY (ARRAY(SELECT jsonb_array_elements_text($3 -> %L))::%s[])', c.key, c.key, c.type)
            WHEN 'object' THEN ai._comparisons_sql(c.key, c.value, c.type)
            ELSE format('s.%I = ($3 ->> %L)::%s', c.key, c.key, c.type) END;
    END LOOP;
    RETURN coalesce(array_to_string(nullif(v_parts, '{}'), ' AND '), 'true');
END $$;

CREATE OR REPLACE FUNCTION ai._comparisons_sql(p_column text, p_comparisons jsonb, p_type text) RETURNS text LANGUAGE plpgsql
IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_operator text;
    v_parts text[] := '{}';
BEGIN
    FOR v_operator IN SELECT o FROM jsonb_object_keys(p_comparisons) o LOOP
        IF v_operator NOT IN ('=', '<>', '<', '<=', '>', '>=', 'like', 'ilike') THEN
            RAISE EXCEPTION 'a filter has no operator "%"', v_operator USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Use =, <>, <, <=, >, >=, like or ilike.';
        END IF;
        v_parts := v_parts || format(CASE WHEN v_operator LIKE '%like' THEN 's.%I::text %s ($3 -> %L ->> %L)'
                                          ELSE 's.%I %s ($3 -> %L ->> %L)::%s' END, p_column, v_operator, p_column, v_operator, p_type);
    END LOOP;
    RETURN coalesce(array_to_string(nullif(v_parts, '{}'), ' AND '), 'true');
END $$;

-- Search. The lock delays a swap to other vectors until the search has ended. With p_generation, a query that was embedded for
-- replaced vectors is rejected: vectors of different models cannot be compared.
CREATE OR REPLACE FUNCTION ai._search(
    p_id int, p_generation int, p_query vector, p_text text, p_limit int, p_filter jsonb
) RETURNS TABLE (distance float8, key jsonb, chunk_seq int, chunk text, source jsonb, score float8) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
    v_scan text[] := ARRAY[current_setting('hnsw.iterative_scan', true), current_setting('ivfflat.iterative_scan', true)];
    v_most int := CASE WHEN p_query IS NULL OR p_text IS NULL THEN p_limit ELSE greatest(4 * p_limit, 50) END;
BEGIN
    IF p_limit IS NULL OR p_limit < 1 OR coalesce(jsonb_typeof(p_filter), 'object') <> 'object' THEN
        RAISE EXCEPTION 'max_results must be at least 1, and filter must be an object' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_id;
    EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE', v.source_table);
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_id;
    IF p_generation <> v.generation THEN
        RAISE EXCEPTION 'the vectors of % were replaced after the query was embedded', v.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Embed the query again.';
    END IF;
    PERFORM ai._scan_on('{strict_order,relaxed_order}');
    RETURN QUERY EXECUTE ai._search_sql(v, p_query IS NOT NULL, p_text IS NOT NULL, p_filter)
        USING p_query, p_text, p_filter, p_limit, v_most;
    PERFORM ai._scan_on(v_scan);
END $$;

-- Set iterative scans for HNSW and IVFFlat (pgvector 0.8 and later): filters apply after the index, so the scan must continue until
-- enough rows are found.
CREATE OR REPLACE FUNCTION ai._scan_on(p_values text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'vector'
               AND (split_part(extversion, '.', 1)::int, split_part(extversion, '.', 2)::int) >= (0, 8)) THEN
        PERFORM set_config('hnsw.iterative_scan', coalesce(nullif(p_values[1], ''), 'off'), true),
                set_config('ivfflat.iterative_scan', coalesce(nullif(p_values[2], ''), 'off'), true);
    END IF;
END $$;

-- The query of a search. $1 is the vector, $2 the text, $3 the filter, $4 the number of results, $5 the candidates per method.
CREATE OR REPLACE FUNCTION ai._search_sql(v ai.vectorizer, p_near boolean, p_words boolean, p_filter jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_config text := format('%L::regconfig', coalesce(v.text_search, current_setting('default_text_search_config')));
    v_from text := format('FROM %s t', v.target_table) || CASE WHEN p_filter IS NULL THEN ''
        ELSE format(' JOIN %s s ON %s AND %s', v.source_table, ai._same_key(v), ai._filter_sql(v, p_filter)) END;
    v_distance text := format('(%s %s %s)', ai._indexed(v, 't.embedding'), ai._distance(v), ai._indexed(v, '$1'));
    v_ways text[] := '{}';
BEGIN
    IF p_near THEN
        v_ways := v_ways || format('SELECT at, row_number() OVER (ORDER BY d, at) AS rank FROM '
            '(SELECT t.ctid AS at, %1$s AS d %2$s ORDER BY %1$s LIMIT $5) n', v_distance, v_from);
    END IF;
    IF p_words THEN
        v_ways := v_ways || format('SELECT at, row_number() OVER (ORDER BY r DESC, at) AS rank FROM '
            '(SELECT t.ctid AS at, ts_rank_cd(to_tsvector(%1$s, t.chunk), w.words) AS r %2$s, (SELECT %3$s AS words) w '
            'WHERE to_tsvector(%1$s, t.chunk) @@ w.words ORDER BY r DESC LIMIT $5) n', v_config, v_from,
            format(CASE WHEN p_near THEN 'replace(plainto_tsquery(%s, $2)::text, ''&'', ''|'')::tsquery'
                        ELSE 'websearch_to_tsquery(%s, $2)' END, v_config));
    END IF;
    RETURN format('SELECT %1$s::float8 AS distance, %2$s, t.chunk_seq, t.chunk, to_jsonb(s), f.score::float8 FROM '
        '(SELECT at, sum(1.0 / (60 + rank)) AS score FROM (%3$s) ways GROUP BY at) f JOIN %4$s t ON t.ctid = f.at '
        'JOIN %5$s s ON %6$s ORDER BY f.score DESC, distance, t.ctid LIMIT $4', CASE WHEN p_near THEN v_distance ELSE 'NULL' END,
        ai._key_json(v, 't.%2$I'), array_to_string(v_ways, ' UNION ALL '), v.target_table, v.source_table, ai._same_key(v));
END $$;
