-- How a vectorizer is put together: its queue, its target table, the triggers that follow the source, and its view.
-- Every name goes into SQL by %I or as a regclass. In the queue the key columns are k1, k2 …, whatever the source calls them.

-- A pattern filled for each key column (%1$s its place, %2$I its name, %3$s its type), joined.
CREATE OR REPLACE FUNCTION ai._each_key(v ai.vectorizer, p_pattern text, p_separator text DEFAULT ', ') RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format(p_pattern, n, v.key_columns[n], v.key_types[n]), p_separator ORDER BY n)
    FROM generate_subscripts(v.key_columns, 1) n
$$;

CREATE OR REPLACE FUNCTION ai._queue_of(v ai.vectorizer) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$ SELECT format('ai.%I', '_queue_' || v.generation) $$;

-- A key as people read it, and as ai.retry_vectorizer puts it back: an object of texts.
CREATE OR REPLACE FUNCTION ai._key_json(v ai.vectorizer, p_column text DEFAULT 'q.k%1$s') RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('jsonb_build_object(%s)', ai._each_key(v, '%2$L, ' || p_column || '::text'))
$$;

-- One vectorizer by its id or its name.
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
            HINT = 'SELECT id, name FROM ai.vectorizer lists them.';
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
            USING ERRCODE = 'undefined_object', HINT = 'Install pgvector, then run: shiftboss db migrate';
    END IF;
    RETURN v_schema;
END $$;

-- Column names used in a template: $name or ${any name}; $$ is a dollar sign, $chunk is the piece of text.
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
        WHEN 'all-minilm' THEN 384 END END
$$;

-- The row checked against its source table, with what follows from it filled in. Changes nothing.
CREATE OR REPLACE FUNCTION ai._checked(v ai.vectorizer) RETURNS ai.vectorizer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_unknown text;
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = v.source_table) NOT IN ('r', 'p') THEN
        RAISE EXCEPTION '% is not a table', v.source_table USING ERRCODE = 'wrong_object_type';
    END IF;
    SELECT array_agg(a.attname::text ORDER BY k.n), array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY k.n)
    INTO v.key_columns, v.key_types
    FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k (attnum, n), pg_attribute a
    WHERE i.indrelid = v.source_table AND i.indisprimary AND k.n <= i.indnkeyatts
      AND a.attrelid = v.source_table AND a.attnum = k.attnum;
    IF v.key_columns IS NULL THEN
        RAISE EXCEPTION 'table % has no primary key', v.source_table USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A vectorizer knows rows by their primary key: add one.';
    END IF;
    IF v.key_columns && '{chunk_seq,chunk,embedding}' THEN
        RAISE EXCEPTION 'a key column of % is called chunk_seq, chunk or embedding', v.source_table
            USING ERRCODE = 'duplicate_column', HINT = 'These are columns of the target table: rename the key column.';
    END IF;
    IF v.columns IS NULL AND v.template IS NULL THEN
        RAISE EXCEPTION 'say what to embed' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'columns => ARRAY[''title'', ''body''], or template => ''$title: $body''.';
    END IF;
    IF v.columns IS NOT NULL AND v.template !~ '\$(chunk\M|\{chunk\})' THEN
        RAISE EXCEPTION 'with columns given, the template must contain $chunk' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'The columns'' text is cut into chunks, and each is put into the template; or leave out columns.';
    END IF;
    v.watched := ARRAY(SELECT DISTINCT c FROM unnest(v.columns || ai._placeholders(v.template)) c ORDER BY c);
    SELECT c INTO v_unknown FROM unnest(v.watched) c WHERE NOT EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = v.source_table AND attname = c AND attnum > 0 AND NOT attisdropped) LIMIT 1;
    IF FOUND OR v.watched = '{}' THEN
        RAISE EXCEPTION 'table % has no column "%"', v.source_table, coalesce(v_unknown, '')
            USING ERRCODE = 'undefined_column', HINT = 'columns and the $names of the template must be its columns.';
    END IF;
    v.chunk_overlap := coalesce(v.chunk_overlap, v.chunk_size / 8);
    v.dimensions := coalesce(v.dimensions, ai._default_dimensions(v.provider, v.model));
    IF v.dimensions IS NULL THEN
        RAISE EXCEPTION 'the dimensions of model % of % are not known', v.model, v.provider
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give them: dimensions => 1024.';
    END IF;
    v.index_method := coalesce(v.index_method, CASE WHEN v.dimensions <= 2000 THEN 'hnsw' ELSE 'none' END);
    IF v.index_method = 'hnsw' AND v.dimensions > 2000 THEN
        RAISE EXCEPTION 'an HNSW index holds at most 2000 dimensions, not %', v.dimensions
            USING ERRCODE = 'program_limit_exceeded', HINT = 'index_method => ''none'', or fewer dimensions.';
    END IF;
    RETURN v;
END $$;

-- Queue, target and triggers. The target's name is p_schema.p_table; its regclass comes back in the row.
CREATE OR REPLACE FUNCTION ai._build(v ai.vectorizer, p_schema text, p_table text) RETURNS ai.vectorizer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TABLE %s (%s, ticket bigint NOT NULL DEFAULT nextval(''ai._ticket''), attempts smallint NOT NULL '
        'DEFAULT 0, due_at timestamptz NOT NULL DEFAULT shiftboss.now(), held boolean NOT NULL DEFAULT false, PRIMARY KEY (%s)) WITH (fillfactor = 80, '
        'autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)',
        ai._queue_of(v), ai._each_key(v, 'k%1$s %3$s NOT NULL'), ai._each_key(v, 'k%1$s'));
    EXECUTE format('CREATE INDEX ON %s (due_at)', ai._queue_of(v));
    EXECUTE format('CREATE TABLE %I.%I (%s, chunk_seq int NOT NULL, chunk text NOT NULL, embedding %s.vector(%s) NOT NULL, '
        'PRIMARY KEY (%s, chunk_seq))', p_schema, p_table, ai._each_key(v, '%2$I %3$s NOT NULL'), ai._vector_schema(),
        v.dimensions, ai._each_key(v, '%2$I'));
    v.target_table := format('%I.%I', p_schema, p_table)::regclass;
    PERFORM ai._follow(v);
    PERFORM ai._attach(v);
    RETURN v;
END $$;

-- The function behind the triggers. A changed row whose entry a worker holds gets a new ticket, so that the worker, which
-- embeds its former content, finds its own ticket gone; an entry that nobody took yet is only locked, and so can not be taken
-- until the change is committed. A deleted row's entry goes first: that waits for a worker which is just writing
-- the row's vectors, and the next statement sees them. Above READ COMMITTED it would not, so there the entry stays.
CREATE OR REPLACE FUNCTION ai._follow(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_per_row boolean := (SELECT relkind = 'p' FROM pg_class WHERE oid = v.source_table);
    v_queue text := ai._queue_of(v);
    v_upsert text := format('ON CONFLICT (%s) DO UPDATE SET ticket = excluded.ticket, due_at = excluded.due_at, attempts = 0, '
                            'held = false WHERE q.held OR q.attempts > 0', ai._each_key(v, 'k%1$s'));
    v_into text := format('INSERT INTO %s AS q (%s, due_at)', v_queue, ai._each_key(v, 'k%1$s'));
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION ai.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS %L', '_follow_' || v.generation, format($body$
DECLARE
    v_now timestamptz := shiftboss.now();
BEGIN
    IF TG_NARGS > 0 THEN
        %1$s SELECT %4$s, v_now FROM (SELECT OLD.*) n %2$s;
        DELETE FROM %3$s t USING (SELECT OLD.*) o WHERE %8$s;
        %1$s SELECT %4$s, v_now FROM (SELECT NEW.*) n %2$s;
    ELSIF TG_OP = 'INSERT' THEN
        %1$s SELECT %4$s, v_now FROM %5$s n %2$s;
    ELSIF TG_OP = 'UPDATE' THEN
        %1$s SELECT %4$s, v_now FROM %5$s n JOIN %6$s o ON %7$s WHERE %9$s %2$s;
    ELSIF TG_OP = 'DELETE' AND current_setting('transaction_isolation') = 'read committed' THEN
        DELETE FROM %10$s q USING %6$s o WHERE %11$s;
        DELETE FROM %3$s t USING %6$s o WHERE %8$s;
        DELETE FROM ai._vectorizer_error e USING %6$s o, ai.vectorizer v
        WHERE v.generation = %12$s AND e.vectorizer_id = v.id AND e.key = %15$s;
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        %1$s SELECT %4$s, v_now FROM %6$s n %2$s;
        DELETE FROM %3$s t USING %6$s o WHERE %8$s;
    ELSE
        PERFORM ai._emptied(v, %10$L, %13$L, %14$L) FROM ai.vectorizer v WHERE v.generation = %12$s;
        RETURN NULL;
    END IF;
    IF FOUND THEN
        PERFORM pg_notify('shiftboss_vectorizers', '');
    END IF;
    RETURN NULL;
END $body$,
        v_into, v_upsert, v.target_table, ai._each_key(v, 'n.%2$I'),
        CASE WHEN v_per_row THEN '(SELECT NEW.*)' ELSE 'new_rows' END,
        CASE WHEN v_per_row THEN '(SELECT OLD.*)' ELSE 'old_rows' END,
        ai._each_key(v, 'o.%2$I = n.%2$I', ' AND '), ai._each_key(v, 't.%2$I = o.%2$I', ' AND '),
        ai._changed(v, 'o', 'n'), v_queue, ai._each_key(v, 'q.k%1$s = o.%2$I', ' AND '), v.generation,
        ai._each_key(v, 'x.k%1$s = s.%2$I', ' AND '), ai._each_key(v, 'x.%2$I = s.%2$I', ' AND '),
        ai._key_json(v, 'o.%2$I')));
END $$;

-- Image comparison needs no operator of the columns' types and is the fastest there is.
CREATE OR REPLACE FUNCTION ai._changed(v ai.vectorizer, p_old text, p_new text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('record_image_ne(ROW(%s), ROW(%s))', string_agg(format('%s.%I', p_old, c), ', '), string_agg(format('%s.%I', p_new, c), ', '))
    FROM unnest(v.watched) c
$$;

-- The source, a partition of it or a child was truncated: nothing may be left for rows that are gone.
CREATE OR REPLACE FUNCTION ai._emptied(v ai.vectorizer, p_queue text, p_queue_keys text, p_target_keys text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_any boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', v.source_table) INTO v_any;
    IF NOT v_any THEN
        EXECUTE format('TRUNCATE %s, %s', p_queue, v.target_table);
        DELETE FROM ai._vectorizer_error WHERE vectorizer_id = v.id;
        RETURN;
    END IF;
    EXECUTE format('LOCK TABLE %s IN EXCLUSIVE MODE', p_queue);
    EXECUTE format('DELETE FROM %s x WHERE NOT EXISTS (SELECT FROM %s s WHERE %s)', p_queue, v.source_table, p_queue_keys);
    EXECUTE format('DELETE FROM %s x WHERE NOT EXISTS (SELECT FROM %s s WHERE %s)', v.target_table, v.source_table, p_target_keys);
END $$;

-- The triggers. One call per statement over its changed rows, where that misses nothing; a partitioned table has them per
-- row, because only those hold for changes made directly in a partition, also in one that is added later.
CREATE OR REPLACE FUNCTION ai._attach(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_per_row boolean := (SELECT relkind = 'p' FROM pg_class WHERE oid = v.source_table);
    v_name text := '_vectorizer_' || v.generation;
    v_call text := format('EXECUTE FUNCTION ai.%I', '_follow_' || v.generation);
    v_part regclass;
BEGIN
    EXECUTE format('CREATE TRIGGER %I AFTER INSERT ON %s %s %s()', v_name || '_insert', v.source_table,
        CASE WHEN v_per_row THEN 'FOR EACH ROW' ELSE 'REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT' END, v_call);
    EXECUTE format('CREATE TRIGGER %I AFTER UPDATE ON %s %s %s()', v_name || '_update', v.source_table,
        CASE WHEN v_per_row THEN format('FOR EACH ROW WHEN (%s)', ai._changed(v, 'OLD', 'NEW'))
             ELSE 'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT' END, v_call);
    EXECUTE format('CREATE TRIGGER %I AFTER DELETE ON %s %s %s()', v_name || '_delete', v.source_table,
        CASE WHEN v_per_row THEN 'FOR EACH ROW' ELSE 'REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT' END, v_call);
    -- A row that got another key: the old key's vectors go, the new key is queued.
    EXECUTE format('CREATE TRIGGER %I AFTER UPDATE OF %s ON %s FOR EACH ROW WHEN (%s) %s(''moved'')', v_name || '_move',
        ai._each_key(v, '%2$I'), v.source_table, ai._each_key(v, 'OLD.%2$I IS DISTINCT FROM NEW.%2$I', ' OR '), v_call);
    FOR v_part IN SELECT v.source_table UNION SELECT relid FROM pg_partition_tree(v.source_table) LOOP
        EXECUTE format('CREATE TRIGGER %I AFTER TRUNCATE ON %s FOR EACH STATEMENT %s()', v_name || '_truncate', v_part, v_call);
    END LOOP;
END $$;

-- Take triggers, function and queue away; with p_target the target table and the view too.
CREATE OR REPLACE FUNCTION ai._unbuild(v ai.vectorizer, p_target boolean) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF v.generation IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format('DROP FUNCTION IF EXISTS ai.%I() CASCADE', '_follow_' || v.generation);  -- and the triggers with it
    EXECUTE format('DROP TABLE IF EXISTS %s', ai._queue_of(v));
    IF p_target AND EXISTS (SELECT FROM pg_class WHERE oid = v.target_view) THEN
        EXECUTE format('DROP VIEW %s', v.target_view);
    END IF;
    IF p_target AND EXISTS (SELECT FROM pg_class WHERE oid = v.target_table) THEN
        EXECUTE format('DROP TABLE %s', v.target_table);
    END IF;
END $$;

-- The view that joins the source's columns with chunks and vectors.
CREATE OR REPLACE FUNCTION ai._view_sql(v ai.vectorizer) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('SELECT %s, t.chunk_seq, t.chunk, t.embedding FROM %s t JOIN %s s ON %s',
        string_agg(format('s.%I AS %I', attname, CASE WHEN attname IN ('chunk_seq', 'chunk', 'embedding')
                                                      THEN 'source_' || attname ELSE attname END), ', ' ORDER BY attnum),
        v.target_table, v.source_table, ai._each_key(v, 't.%2$I = s.%2$I', ' AND '))
    FROM pg_attribute WHERE attrelid = v.source_table AND attnum > 0 AND NOT attisdropped
$$;
