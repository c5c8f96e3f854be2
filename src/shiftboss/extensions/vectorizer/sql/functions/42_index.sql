-- Indexes of a target. The name of an index identifies its vectorizer and its definition, so checking the name is enough. Workers
-- build them CONCURRENTLY, so that writers to the source do not wait.

CREATE OR REPLACE FUNCTION ai._checked_index(v ai.vectorizer) RETURNS ai.vectorizer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_limit int;
    v_bad text;
BEGIN
    v.index_opclass := coalesce(v.index_opclass, 'vector_cosine_ops');
    v.index_options := coalesce(v.index_options, '{}');
    IF v.index_opclass !~ '^(vector|halfvec)_(cosine|l2|ip|l1)_ops$' THEN
        RAISE EXCEPTION 'there is no index_opclass "%"', v.index_opclass USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use vector_cosine_ops, vector_l2_ops, vector_ip_ops, vector_l1_ops, or the same with halfvec.';
    END IF;
    v_limit := CASE WHEN starts_with(v.index_opclass, 'halfvec') THEN 4000 ELSE 2000 END;
    v.index_method := coalesce(v.index_method, CASE WHEN v.dimensions <= v_limit THEN 'hnsw' ELSE 'none' END);
    IF v.index_method <> 'none' AND v.dimensions > v_limit THEN
        RAISE EXCEPTION 'an index with % supports at most % dimensions, not %', v.index_opclass, v_limit, v.dimensions
            USING ERRCODE = 'program_limit_exceeded',
            HINT = 'Use index_opclass => ''halfvec_cosine_ops'' (up to 4000), index_method => ''none'', or fewer dimensions.';
    END IF;
    IF v.index_method = 'ivfflat' AND v.index_opclass LIKE '%l1_ops' THEN
        RAISE EXCEPTION 'IVFFlat has no operator class %', v.index_opclass USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use hnsw for this distance.';
    END IF;
    SELECT o.key || ' = ' || o.value INTO v_bad FROM jsonb_each_text(v.index_options) o
    LEFT JOIN (VALUES ('hnsw', 'm', 2, 100), ('hnsw', 'ef_construction', 4, 1000), ('ivfflat', 'lists', 1, 32768))
        k (method, key, least, most) ON k.key = o.key AND k.method = v.index_method
    WHERE k.key IS NULL OR o.value !~ '^\d{1,5}$' OR o.value::int NOT BETWEEN k.least AND k.most LIMIT 1;
    IF FOUND OR (v.index_options ->> 'ef_construction')::int < 2 * coalesce((v.index_options ->> 'm')::int, 16) THEN
        RAISE EXCEPTION 'index option % is not valid for a % index', coalesce(v_bad, 'ef_construction < 2 * m'), v.index_method
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Valid are m (2 to 100) and ef_construction (4 to 1000, at least 2 * m) for hnsw, lists (1 to 32768) for ivfflat.';
    END IF;
    BEGIN
        PERFORM v.text_search::regconfig;
    EXCEPTION WHEN undefined_object OR invalid_name OR syntax_error THEN
        RAISE EXCEPTION 'there is no text search configuration "%"', v.text_search USING ERRCODE = 'invalid_parameter_value',
            HINT = 'To list them: SELECT cfgname FROM pg_ts_config';
    END;
    RETURN v;
END $$;

-- SQL for a vector in the type of the index.
CREATE OR REPLACE FUNCTION ai._indexed(v ai.vectorizer, p_vector text) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN starts_with(v.index_opclass, 'halfvec')
                THEN format('(%s::%s.halfvec(%s))', p_vector, ai._vector_schema(), v.dimensions) ELSE p_vector END
$$;

CREATE OR REPLACE FUNCTION ai._distance(v ai.vectorizer) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('OPERATOR(%s.%s)', ai._vector_schema(), CASE split_part(v.index_opclass, '_', 2)
        WHEN 'cosine' THEN '<=>' WHEN 'l2' THEN '<->' WHEN 'ip' THEN '<#>' WHEN 'l1' THEN '<+>' END)
$$;

-- The names and definitions of the indexes that a vectorizer needs. The default of lists follows pgvector's recommendation.
CREATE OR REPLACE FUNCTION ai._indexes_wanted(v ai.vectorizer, p_rows bigint) RETURNS TABLE (name text, definition text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('_vectorizer_%s_%s_%s', v.generation, v.index_method, left(md5(v.index_opclass || v.index_options::text), 8)),
           format('%s (%s %s.%s) %s', v.index_method, ai._indexed(v, 'embedding'), ai._vector_schema(), v.index_opclass,
                  (SELECT 'WITH (' || string_agg(format('%I = %s', o.key, o.value), ', ') || ')'
                   FROM jsonb_each_text(CASE v.index_method WHEN 'ivfflat' THEN jsonb_build_object('lists',
                       greatest(1, CASE WHEN p_rows > 1000000 THEN sqrt(p_rows)::int ELSE p_rows / 1000 END))
                       ELSE '{}' END || v.index_options) o))
    WHERE v.index_method <> 'none'
    UNION ALL
    SELECT format('_vectorizer_%s_text_%s', v.generation, left(md5(v.text_search), 8)),
           format('gin (to_tsvector(%L::regconfig, chunk))', v.text_search)
    WHERE v.text_search IS NOT NULL
$$;

CREATE OR REPLACE FUNCTION ai._indexes_there(v ai.vectorizer) RETURNS TABLE (name text, index regclass, valid boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.relname::text, i.indexrelid::regclass, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = v.target_table AND starts_with(c.relname, format('_vectorizer_%s_', v.generation))
$$;

-- The statements that create the indexes, once the target has enough rows, and drop old and invalid ones. Empty if there is
-- nothing to do.
CREATE OR REPLACE FUNCTION ai._vectorizer_index(p_id int) RETURNS text[] LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
    v_rows bigint;
    v_least bigint;
BEGIN
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_id AND x.generation IS NOT NULL
        AND EXISTS (SELECT FROM pg_class WHERE oid = x.target_table);
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    IF EXISTS (SELECT FROM ai._indexes_wanted(v, 0) w WHERE w.name NOT IN (SELECT t.name FROM ai._indexes_there(v) t WHERE t.valid)) THEN
        v_least := coalesce(v.index_min_rows, shiftboss.setting('vectorizer_index_rows', '10000')::bigint);
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT $1) t', v.target_table) INTO v_rows USING v_least;
        IF v_rows = v_least THEN
            EXECUTE format('SELECT count(*) FROM %s', v.target_table) INTO v_rows;
        ELSE
            v_rows := NULL;  -- not yet
        END IF;
    END IF;
    RETURN ARRAY(
        SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %s', t.index) FROM ai._indexes_there(v) t WHERE NOT t.valid
        UNION ALL
        SELECT format('CREATE INDEX CONCURRENTLY %I ON %s USING %s', w.name, v.target_table, w.definition)
        FROM ai._indexes_wanted(v, v_rows) w
        WHERE v_rows IS NOT NULL AND w.name NOT IN (SELECT t.name FROM ai._indexes_there(v) t WHERE t.valid)
        UNION ALL
        SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %s', t.index) FROM ai._indexes_there(v) t
        WHERE t.valid AND t.name NOT IN (SELECT w.name FROM ai._indexes_wanted(v, 0) w));
END $$;

CREATE OR REPLACE FUNCTION ai._vectorizer_indexed(p_id int) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$ UPDATE ai.vectorizer SET index_due = false WHERE id = p_id AND index_due $$;

-- The state of the indexes for ai.vectorizer_status.
CREATE OR REPLACE FUNCTION ai._index_state(v ai.vectorizer) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN NOT EXISTS (SELECT FROM ai._indexes_wanted(v, 0)) THEN 'none'
        WHEN NOT EXISTS (SELECT FROM ai._indexes_wanted(v, 0) w
                         WHERE w.name NOT IN (SELECT t.name FROM ai._indexes_there(v) t WHERE t.valid)) THEN 'ready'
        ELSE coalesce((SELECT format('%s, %s %%', p.phase, round(100 * coalesce(greatest(
                p.tuples_done::numeric / nullif(p.tuples_total, 0), p.blocks_done::numeric / nullif(p.blocks_total, 0)), 0)))
            FROM pg_stat_progress_create_index p WHERE p.relid = v.target_table LIMIT 1),
            format('waiting for %s vectors', coalesce(v.index_min_rows, shiftboss.setting('vectorizer_index_rows', '10000')::bigint)))
    END
$$;

-- Rename an index that was built before the naming scheme existed.
CREATE OR REPLACE FUNCTION ai._name_index(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_index regclass;
BEGIN
    SELECT i.indexrelid INTO v_index FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE i.indrelid = v.target_table AND a.amname = 'hnsw' AND i.indisvalid LIMIT 1;
    IF FOUND AND v.index_method = 'hnsw' THEN
        EXECUTE (SELECT format('ALTER INDEX %s RENAME TO %I', v_index, w.name) FROM ai._indexes_wanted(v, 0) w LIMIT 1);
    END IF;
END $$;
