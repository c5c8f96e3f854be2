-- Creates the log, the queue and the target table of a vectorizer. 20_follow.sql has the triggers, 25_view.sql the joining view.
-- Names enter SQL only through %I or as regclass. In the queue the key columns are named k1, k2 …, independent of the source.

-- Format a pattern for each key column (%1$s position, %2$I name, %3$s type) and join the results.
CREATE OR REPLACE FUNCTION ai._each_key(v ai.vectorizer, p_pattern text, p_separator text DEFAULT ', ') RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format(p_pattern, n, v.key_columns[n], v.key_types[n]), p_separator ORDER BY n)
    FROM generate_subscripts(v.key_columns, 1) n
$$;

CREATE OR REPLACE FUNCTION ai._queue_of(v ai.vectorizer) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$ SELECT format('ai.%I', '_queue_' || v.generation) $$;

CREATE OR REPLACE FUNCTION ai._log_of(v ai.vectorizer) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$ SELECT format('ai.%I', '_log_' || v.generation) $$;

-- The current names of these columns of the source; NULL for a dropped one.
CREATE OR REPLACE FUNCTION ai._names(p_table regclass, p_numbers int2[]) RETURNS text[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(a.attname::text ORDER BY n), '{}')
    FROM unnest(p_numbers) WITH ORDINALITY c (number, n)
    LEFT JOIN pg_attribute a ON a.attrelid = p_table AND a.attnum = c.number AND NOT a.attisdropped
$$;

-- The row with the current column names of the source. In the target, the key columns have the names stored in the row.
CREATE OR REPLACE FUNCTION ai._current(v ai.vectorizer) RETURNS ai.vectorizer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    v.key_columns := ai._names(v.source_table, v.key_numbers);
    v.watched := ai._names(v.source_table, v.watched_numbers);
    RETURN v;
END $$;

-- SQL condition: the row of the target (t, or p_target) belongs to the row of the source (s).
DROP FUNCTION IF EXISTS ai._same_key(ai.vectorizer);
CREATE OR REPLACE FUNCTION ai._same_key(v ai.vectorizer, p_target text DEFAULT 't') RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('(%s) = (%s)', ai._each_key(v, replace(p_target, '%', '%%') || '.%2$I'), ai._each_key(ai._current(v), 's.%2$I'))
$$;

-- The permanent problem that stops a vectorizer, and what to do; NULL if there is none.
CREATE OR REPLACE FUNCTION ai._trouble(v ai.vectorizer) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN v.generation IS NULL THEN NULL
        WHEN v.detached IS NOT NULL
        THEN format('it is detached from its source: SELECT ai.attach_vectorizer(%s)', v.id)
        WHEN NOT EXISTS (SELECT FROM pg_class WHERE oid = v.source_table)
        THEN format('the source table was dropped: SELECT ai.drop_vectorizer(%1$s, drop_all => true), or '
                    'SELECT ai.attach_vectorizer(%1$s, source => ''…'') to attach it to another table', v.id)
        WHEN NOT EXISTS (SELECT FROM pg_class WHERE oid = v.target_table)
        THEN format('the target table was dropped: SELECT ai.drop_vectorizer(%s, drop_all => true), then create it again', v.id)
        WHEN array_position(ai._names(v.source_table, v.key_numbers), NULL) IS NOT NULL
        THEN format('a key column of %s was dropped: drop the vectorizer and create it again', v.source_table)
        WHEN array_position(ai._names(v.source_table, v.watched_numbers), NULL) IS NOT NULL
        THEN format('column "%s" of %s was dropped: SELECT ai.update_vectorizer(%s, columns => ARRAY[…])',
                    v.watched[array_position(ai._names(v.source_table, v.watched_numbers), NULL)], v.source_table, v.id)
    END
$$;

-- SQL for a key as a JSON object of texts, which is shown to users and read by ai.retry_vectorizer.
CREATE OR REPLACE FUNCTION ai._key_json(v ai.vectorizer, p_column text DEFAULT 'q.k%1$s') RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('jsonb_build_object(%s)', ai._each_key(v, '%2$L, ' || p_column || '::text'))
$$;

-- The vectorizer with this id or name. A number is always an id; a text is a name or, if there is none, an id.
CREATE OR REPLACE FUNCTION ai._named(p_vectorizer anycompatible) RETURNS ai.vectorizer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
BEGIN
    IF pg_typeof(p_vectorizer) NOT IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype) THEN
        RETURN ai._vectorizer(p_vectorizer::text);
    END IF;
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id::text = p_vectorizer::text;
    IF v.id IS NULL THEN
        RAISE EXCEPTION 'there is no vectorizer with id %', p_vectorizer USING ERRCODE = 'undefined_object',
            HINT = 'To list them: SELECT id, name FROM ai.vectorizer';
    END IF;
    RETURN v;
END $$;

CREATE OR REPLACE FUNCTION ai._vectorizer(p_vectorizer text) RETURNS ai.vectorizer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
BEGIN
    SELECT * INTO v FROM ai.vectorizer x WHERE x.name = p_vectorizer AND x.replaces IS NULL;
    IF NOT FOUND AND p_vectorizer ~ '^\d{1,9}$' THEN
        SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_vectorizer::int;
    END IF;
    IF v.id IS NULL THEN
        RAISE EXCEPTION 'there is no vectorizer "%"', p_vectorizer USING ERRCODE = 'undefined_object',
            HINT = 'To list them: SELECT id, name FROM ai.vectorizer';
    END IF;
    RETURN v;
END $$;

CREATE OR REPLACE FUNCTION ai._vector_schema() RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_schema text := (SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector');
BEGIN
    IF v_schema IS NULL THEN
        RAISE EXCEPTION 'vectorizers need the extension vector (pgvector), which this database does not have'
            USING ERRCODE = 'feature_not_supported', HINT = 'Install pgvector, then run: shiftboss db migrate';
    END IF;
    RETURN v_schema;
END $$;

-- The column names in a template, as $name or ${any name}. $$ is a dollar sign, $chunk is the chunk.
CREATE OR REPLACE FUNCTION ai._placeholders(p_template text) RETURNS text[] LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $sql$
    SELECT coalesce(array_agg(DISTINCT name), '{}')
    FROM (SELECT coalesce(m[1], m[2]) AS name
          FROM regexp_matches(replace(p_template, '$$', ''), '\$(?:\{([^}]+)\}|([A-Za-z_]\w*))', 'g') m) found
    WHERE name <> 'chunk'
$sql$;

CREATE OR REPLACE FUNCTION ai._default_dimensions(p_provider text, p_model text) RETURNS int LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_provider = 'local' AND p_model IS NULL THEN 256 ELSE CASE coalesce(p_model, p_provider)
        WHEN 'wordllama-l2-supercat-256' THEN 256
        WHEN 'openai' THEN 1536 WHEN 'azure' THEN 1536 WHEN 'text-embedding-3-small' THEN 1536
        WHEN 'text-embedding-ada-002' THEN 1536 WHEN 'text-embedding-3-large' THEN 3072
        WHEN 'ollama' THEN 768 WHEN 'nomic-embed-text' THEN 768 WHEN 'mxbai-embed-large' THEN 1024
        WHEN 'all-minilm' THEN 384 WHEN 'all-MiniLM-L6-v2' THEN 384 WHEN 'minilm-use-multilingual' THEN 896 END END
$$;

-- Validate the row against its source table, and fill in keys, watched columns and defaults. Stores nothing.
CREATE OR REPLACE FUNCTION ai._checked(v ai.vectorizer) RETURNS ai.vectorizer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_unknown text;
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = v.source_table) NOT IN ('r', 'p') THEN
        RAISE EXCEPTION '% is not a table', v.source_table USING ERRCODE = 'wrong_object_type';
    END IF;
    IF (SELECT relpersistence = 't' FROM pg_class WHERE oid = v.source_table) THEN
        RAISE EXCEPTION '% is a temporary table', v.source_table USING ERRCODE = 'wrong_object_type',
            HINT = 'Workers are other sessions and cannot read it: use an ordinary table.';
    END IF;
    SELECT array_agg(a.attname::text ORDER BY k.n), array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY k.n),
           array_agg(a.attnum ORDER BY k.n)
    INTO v.key_columns, v.key_types, v.key_numbers
    FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k (attnum, n), pg_attribute a
    WHERE i.indrelid = v.source_table AND i.indisprimary AND k.n <= i.indnkeyatts
      AND a.attrelid = v.source_table AND a.attnum = k.attnum;
    IF v.key_columns IS NULL THEN
        RAISE EXCEPTION 'table % has no primary key', v.source_table USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Add a primary key: a vectorizer identifies rows by it.';
    END IF;
    IF v.key_columns && '{chunk_seq,chunk,embedding}' THEN
        RAISE EXCEPTION 'a key column of % is named chunk_seq, chunk or embedding', v.source_table
            USING ERRCODE = 'duplicate_column', HINT = 'Rename the key column: the target table has columns of these names.';
    END IF;
    IF v.columns IS NULL AND v.template IS NULL THEN
        RAISE EXCEPTION 'neither columns nor template is given' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Add columns => ARRAY[''title'', ''body''], or template => ''$title: $body''.';
    END IF;
    IF v.columns IS NOT NULL AND v.template !~ '\$(chunk\M|\{chunk\})' THEN
        RAISE EXCEPTION 'a template for chunks of columns must contain $chunk' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Add $chunk to the template, or omit columns to embed the template itself.';
    END IF;
    v.watched := ARRAY(SELECT DISTINCT c FROM unnest(v.columns || ai._placeholders(v.template)) c ORDER BY c);
    SELECT c INTO v_unknown FROM unnest(v.watched) c WHERE NOT EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = v.source_table AND attname = c AND attnum > 0 AND NOT attisdropped) LIMIT 1;
    IF FOUND OR v.watched = '{}' THEN
        RAISE EXCEPTION 'table % has no column "%"', v.source_table, coalesce(v_unknown, '')
            USING ERRCODE = 'undefined_column', HINT = 'Use names of its columns in columns and template.';
    END IF;
    v.watched_numbers := ARRAY(SELECT a.attnum FROM unnest(v.watched) c JOIN pg_attribute a ON a.attname = c
                               WHERE a.attrelid = v.source_table ORDER BY c);
    v.chunk_overlap := coalesce(v.chunk_overlap, v.chunk_size / 8);
    v.dimensions := coalesce(v.dimensions, ai._default_dimensions(v.provider, v.model));
    IF v.dimensions IS NULL THEN
        RAISE EXCEPTION 'the number of dimensions of model % of % is unknown', v.model, v.provider
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Add it, for example: dimensions => 1024.';
    END IF;
    v.send_dimensions := v.dimensions IS DISTINCT FROM ai._default_dimensions(v.provider, v.model);
    RETURN ai._checked_index(v);
END $$;

-- Create log, queue, target (named p_schema.p_table) and triggers. Returns the row with the target's regclass.
CREATE OR REPLACE FUNCTION ai._build(v ai.vectorizer, p_schema text, p_table text) RETURNS ai.vectorizer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TABLE %s (%s, ticket bigint NOT NULL DEFAULT nextval(''ai._ticket''), attempts smallint NOT NULL '
        'DEFAULT 0, due_at timestamptz NOT NULL DEFAULT shiftboss.now(), held boolean NOT NULL DEFAULT false, '
        'PRIMARY KEY (%s)) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)',
        ai._queue_of(v), ai._each_key(v, 'k%1$s %3$s NOT NULL'), ai._each_key(v, 'k%1$s'));
    EXECUTE format('CREATE INDEX ON %s (due_at)', ai._queue_of(v));
    PERFORM ai._make_log(v);
    EXECUTE format('CREATE TABLE %I.%I (%s, chunk_seq int NOT NULL, chunk text NOT NULL, embedding %s.vector(%s) NOT NULL, '
        'PRIMARY KEY (%s, chunk_seq))', p_schema, p_table, ai._each_key(v, '%2$I %3$s NOT NULL'), ai._vector_schema(),
        v.dimensions, ai._each_key(v, '%2$I'));
    v.target_table := format('%I.%I', p_schema, p_table)::regclass;
    PERFORM ai._follow_security(v);
    PERFORM ai._follow(v);
    PERFORM ai._attach(v);
    RETURN v;
END $$;

-- The index is for deletes of source rows, which also delete their entries.
CREATE OR REPLACE FUNCTION ai._make_log(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TABLE %s (%s) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)',
        ai._log_of(v), ai._each_key(v, 'k%1$s %3$s NOT NULL'));
    EXECUTE format('CREATE INDEX ON %s (%s)', ai._log_of(v), ai._each_key(v, 'k%1$s'));
END $$;

-- Drop triggers, functions, log and queue; with p_target the target table and the view as well.
CREATE OR REPLACE FUNCTION ai._unbuild(v ai.vectorizer, p_target boolean) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF v.generation IS NULL THEN
        RETURN;
    END IF;
    PERFORM ai._detach(v);
    EXECUTE format('DROP TABLE IF EXISTS %s, %s', ai._queue_of(v), ai._log_of(v));
    IF p_target AND EXISTS (SELECT FROM pg_class WHERE oid = v.target_view) THEN
        EXECUTE format('DROP VIEW %s', v.target_view);
    END IF;
    IF p_target AND EXISTS (SELECT FROM pg_class WHERE oid = v.target_table) THEN
        EXECUTE format('DROP TABLE %s', v.target_table);
    END IF;
END $$;
