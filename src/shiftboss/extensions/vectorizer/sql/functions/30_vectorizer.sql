-- Public functions: create, update, drop, pause, resume and retry. All take the id or the name of a vectorizer.

DROP FUNCTION IF EXISTS ai.create_vectorizer(regclass, text, text[], text, text, int, int, text, text, int, text, text, text,
    interval, int, int, boolean, boolean);
CREATE OR REPLACE FUNCTION ai.create_vectorizer(
    source regclass, name text DEFAULT NULL, columns text[] DEFAULT NULL, template text DEFAULT NULL,
    chunking text DEFAULT 'sentences', chunk_size int DEFAULT 800, chunk_overlap int DEFAULT NULL,
    provider text DEFAULT 'local', model text DEFAULT NULL, dimensions int DEFAULT NULL,
    destination text DEFAULT NULL, view_name text DEFAULT NULL, index_method text DEFAULT NULL,
    schedule interval DEFAULT NULL, batch_size int DEFAULT 256, concurrency int DEFAULT 4,
    enqueue_existing boolean DEFAULT true, if_not_exists boolean DEFAULT false,
    separators text[] DEFAULT NULL, base_url text DEFAULT NULL, api_key_name text DEFAULT NULL,
    index_opclass text DEFAULT 'vector_cosine_ops', index_options jsonb DEFAULT '{}', index_min_rows int DEFAULT NULL,
    text_search text DEFAULT NULL
) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v ai.vectorizer;
    v_home text;
    v_table text;
    v_target text[];
    v_view text[];
    v_id int;
BEGIN
    PERFORM ai._vector_schema();
    SELECT n.nspname, c.relname INTO v_home, v_table
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = source;
    v.name := coalesce(create_vectorizer.name, left(v_table, 50) || '_embedding');
    SELECT x.id INTO v_id FROM ai.vectorizer x WHERE x.name = v.name AND x.replaces IS NULL;
    IF FOUND AND if_not_exists THEN
        RAISE NOTICE 'vectorizer "%" already exists', v.name;
        RETURN v_id;
    ELSIF FOUND THEN
        RAISE EXCEPTION 'vectorizer "%" already exists', v.name USING ERRCODE = 'duplicate_object',
            HINT = 'Choose another name, drop the existing vectorizer, or add if_not_exists => true.';
    END IF;
    v_target := ai._table_name(coalesce(destination, format('%I', left(v.name, 57) || '_store')), v_home);
    v_view := ai._table_name(coalesce(view_name, format('%I', left(v.name, 63))), v_home);

    v.source_table := source;
    v.columns := columns;
    v.template := template;
    v.chunking := chunking;
    v.chunk_size := chunk_size;
    v.chunk_overlap := chunk_overlap;
    v.provider := provider;
    v.model := model;
    v.dimensions := dimensions;
    v.index_method := index_method;
    v.schedule := schedule;
    v.batch_size := batch_size;
    v.concurrency := concurrency;
    v.separators := separators;
    v.base_url := base_url;
    v.api_key_name := api_key_name;
    v.index_opclass := index_opclass;
    v.index_options := index_options;
    v.index_min_rows := index_min_rows;
    v.text_search := text_search;
    v.view_name := format('%I.%I', v_view[1], v_view[2]);
    v := ai._make(v, v_target, enqueue_existing);
    PERFORM ai._create_view(v, 'CREATE VIEW', v.view_name);
    UPDATE ai.vectorizer SET target_view = v.view_name::regclass WHERE id = v.id;
    RETURN v.id;
END $$;

-- Split 'table' or 'schema.table', quoted where needed, into schema and table.
CREATE OR REPLACE FUNCTION ai._table_name(p_name text, p_schema text) RETURNS text[] LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE cardinality(parts) WHEN 1 THEN p_schema || parts ELSE parts[1:2] END FROM parse_ident(p_name) parts
$$;

-- Register a vectorizer, create its tables and triggers, and optionally queue the existing rows.
CREATE OR REPLACE FUNCTION ai._make(v ai.vectorizer, p_target text[], p_enqueue boolean) RETURNS ai.vectorizer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    v := ai._checked(v);
    v.id := nextval(pg_get_serial_sequence('ai.vectorizer', 'id'));
    v.generation := nextval('ai._generation');
    v.build := 4;
    v.paused := false;
    v.detached := NULL;
    v.index_due := false;
    v.created_at := shiftboss.now();
    INSERT INTO ai.vectorizer SELECT v.*;
    v := ai._build(v, p_target[1], p_target[2]);
    UPDATE ai.vectorizer x SET target_table = v.target_table WHERE x.id = v.id;
    IF p_enqueue THEN
        PERFORM ai._queue_all(v);
    END IF;
    RETURN v;
END $$;

-- Queue all rows of the source. Rows that a worker has claimed get a new ticket, which invalidates the claim.
CREATE OR REPLACE FUNCTION ai._queue_all(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('INSERT INTO %s AS q (%s, due_at) SELECT %s, $1 FROM %s s ON CONFLICT (%2$s) DO UPDATE '
        'SET ticket = excluded.ticket, due_at = excluded.due_at, attempts = 0, held = false', ai._queue_of(v),
        ai._each_key(v, 'k%1$s'), ai._each_key(v, 's.%2$I'), v.source_table) USING shiftboss.now();
    PERFORM pg_notify('shiftboss_vectorizers', '');
END $$;

-- Change a vectorizer. Omitted settings stay; '' clears base_url, api_key_name and text_search. If vectors change, a replacement
-- embeds everything again in the background and takes over when its queue is empty; until then searches use the old vectors.
-- Other settings apply at once. Returns the id of the vectorizer, or of the replacement.
DROP FUNCTION IF EXISTS ai.update_vectorizer(anycompatible, text[], text, text, int, int, text, text, int, text, interval, int, int);
CREATE OR REPLACE FUNCTION ai.update_vectorizer(
    vectorizer anycompatible, columns text[] DEFAULT NULL, template text DEFAULT NULL,
    chunking text DEFAULT NULL, chunk_size int DEFAULT NULL, chunk_overlap int DEFAULT NULL,
    provider text DEFAULT NULL, model text DEFAULT NULL, dimensions int DEFAULT NULL, index_method text DEFAULT NULL,
    schedule interval DEFAULT NULL, batch_size int DEFAULT NULL, concurrency int DEFAULT NULL,
    separators text[] DEFAULT NULL, base_url text DEFAULT NULL, api_key_name text DEFAULT NULL,
    index_opclass text DEFAULT NULL, index_options jsonb DEFAULT NULL, index_min_rows int DEFAULT NULL,
    text_search text DEFAULT NULL
) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_old ai.vectorizer := ai._named(vectorizer);
    v ai.vectorizer;
BEGIN
    SELECT * INTO v_old FROM ai.vectorizer x WHERE x.id = coalesce(v_old.replaces, v_old.id) FOR UPDATE;
    UPDATE ai.vectorizer x SET schedule = coalesce(update_vectorizer.schedule, x.schedule),
        batch_size = coalesce(update_vectorizer.batch_size, x.batch_size),
        concurrency = coalesce(update_vectorizer.concurrency, x.concurrency), next_run_at = NULL
    WHERE v_old.id IN (x.id, x.replaces);
    SELECT r.* INTO v_old FROM ai.vectorizer x, ai._follow_renames(x) r WHERE x.id = v_old.id;
    v := v_old;
    IF columns IS NOT NULL OR template IS NOT NULL THEN  -- together they define the text
        v.columns := columns;
        v.template := template;
    END IF;
    v.chunking := coalesce(chunking, v.chunking);
    v.chunk_size := coalesce(chunk_size, v.chunk_size);
    v.chunk_overlap := coalesce(chunk_overlap, CASE WHEN chunk_size IS NULL THEN v.chunk_overlap END);
    v.separators := coalesce(separators, v.separators);
    IF provider IS NOT NULL OR model IS NOT NULL THEN  -- another model may have other dimensions
        v.provider := coalesce(provider, v.provider);
        v.model := model;
        v.dimensions := coalesce(dimensions, ai._default_dimensions(v.provider, v.model));
    END IF;
    v.dimensions := coalesce(dimensions, v.dimensions);
    v.base_url := nullif(coalesce(base_url, v.base_url), '');
    v.api_key_name := nullif(coalesce(api_key_name, v.api_key_name), '');
    v.text_search := nullif(coalesce(text_search, v.text_search), '');
    v.index_opclass := coalesce(index_opclass, v.index_opclass);
    v.index_min_rows := coalesce(index_min_rows, v.index_min_rows);
    v.index_options := coalesce(index_options, CASE WHEN index_method IN (v.index_method) OR index_method IS NULL THEN v.index_options END);
    -- Choose the index method again if the old or the new dimensions are too many for an index.
    v.index_method := coalesce(index_method, CASE WHEN v.dimensions <= 2000 AND (v.index_method <> 'none' OR v_old.dimensions <= 2000)
                                                  THEN v.index_method END);
    v := ai._checked(v);
    IF ai._vectors_depend_on(v) = ai._vectors_depend_on(v_old) THEN
        PERFORM ai._change_at_once(v);
        RETURN v_old.id;
    END IF;
    RETURN ai._replace(v_old, v);
END $$;

-- The settings that vectors depend on.
CREATE OR REPLACE FUNCTION ai._vectors_depend_on(v ai.vectorizer) RETURNS jsonb LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_array(v.columns, v.template, v.watched_numbers, v.chunking, v.chunk_size, v.chunk_overlap, v.separators,
                             v.provider, v.model, v.dimensions)
$$;

-- Apply settings that do not change vectors, for a vectorizer and its replacement.
CREATE OR REPLACE FUNCTION ai._change_at_once(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE ai.vectorizer x SET base_url = v.base_url, api_key_name = v.api_key_name, text_search = v.text_search,
        index_method = v.index_method, index_opclass = v.index_opclass, index_options = v.index_options,
        index_min_rows = v.index_min_rows, index_due = true
    WHERE v.id IN (x.id, x.replaces);
    PERFORM pg_notify('shiftboss_vectorizers', '');
END $$;

-- Create v as the replacement of v_old.
CREATE OR REPLACE FUNCTION ai._replace(v_old ai.vectorizer, v ai.vectorizer) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_target text[];
BEGIN
    PERFORM ai._discard(x) FROM ai.vectorizer x WHERE x.replaces = v_old.id;
    SELECT ARRAY[n.nspname, left(c.relname, 52) || '_next'] INTO v_target
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = v_old.target_table;
    v.replaces := v_old.id;
    v.target_view := NULL;
    v.next_run_at := NULL;
    v.deferred_until := NULL;
    v := ai._make(v, v_target, true);
    IF v_old.paused THEN
        UPDATE ai.vectorizer x SET paused = true WHERE x.id = v.id;
    END IF;
    RETURN v.id;
END $$;

CREATE OR REPLACE FUNCTION ai._discard(v ai.vectorizer, p_target boolean DEFAULT true) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM ai._unbuild(v, p_target);
    DELETE FROM ai.vectorizer WHERE id = v.id;
END $$;

-- Swap in a finished replacement under the id and names of the old vectorizer. Returns false while its queue is not empty or,
-- unless forced, while it has failed rows, whose old vectors would be lost.
CREATE OR REPLACE FUNCTION ai.swap_vectorizer(vectorizer anycompatible, force boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_old ai.vectorizer := ai._named(vectorizer);
    v ai.vectorizer;
    v_target text;
BEGIN
    SELECT * INTO v_old FROM ai.vectorizer x WHERE x.id = coalesce(v_old.replaces, v_old.id) FOR UPDATE;
    SELECT * INTO v FROM ai.vectorizer x WHERE x.replaces = v_old.id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF ai._pending(v) > 0
       OR NOT force AND EXISTS (SELECT FROM ai._vectorizer_error e WHERE e.vectorizer_id = v.id AND e.final) THEN
        RETURN false;
    END IF;
    -- Take the strongest lock at once, since triggers are dropped, with a short timeout, since all users of the source wait.
    PERFORM set_config('lock_timeout', '2s', true);
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', v.source_table);
    IF ai._pending(v) > 0 THEN
        RETURN false;
    END IF;
    v_target := (SELECT relname FROM pg_class WHERE oid = v_old.target_table);
    PERFORM ai._move_view(v_old, v);
    PERFORM ai._copy_grants(v_old.target_table, v.target_table);
    PERFORM ai._unbuild(v_old, false);
    EXECUTE format('DROP TABLE %s', v_old.target_table);
    EXECUTE format('ALTER TABLE %s RENAME TO %I', v.target_table, v_target);
    PERFORM ai._follow(v);
    UPDATE ai.vectorizer x SET generation = NULL WHERE x.id = v.id;
    UPDATE ai.vectorizer x SET generation = v.generation, target_table = v.target_table, columns = v.columns,
        template = v.template, watched = v.watched, chunking = v.chunking, chunk_size = v.chunk_size,
        chunk_overlap = v.chunk_overlap, provider = v.provider, model = v.model, dimensions = v.dimensions,
        separators = v.separators, base_url = v.base_url, api_key_name = v.api_key_name, text_search = v.text_search,
        send_dimensions = v.send_dimensions, index_method = v.index_method, index_opclass = v.index_opclass,
        index_options = v.index_options, index_min_rows = v.index_min_rows, detached = NULL, key_columns = v.key_columns, key_types = v.key_types,
        key_numbers = v.key_numbers, watched_numbers = v.watched_numbers, build = v.build,
        target_view = (SELECT y.target_view FROM ai.vectorizer y WHERE y.id = v_old.id), deferred_until = NULL
    WHERE x.id = v_old.id;
    DELETE FROM ai._vectorizer_error WHERE vectorizer_id = v_old.id;
    UPDATE ai._vectorizer_error SET vectorizer_id = v_old.id WHERE vectorizer_id = v.id;
    DELETE FROM ai.vectorizer WHERE id = v.id;
    RETURN true;
END $$;

-- Point the view at the new target. It must be created again if the type of a column changed (other dimensions), or if it was
-- dropped together with a column.
CREATE OR REPLACE FUNCTION ai._move_view(v_old ai.vectorizer, v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_name text := ai._view_name(v_old);
    v_grants text[] := ai._grants(v_old.target_view);
BEGIN
    IF v_name IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        PERFORM ai._create_view(v, 'CREATE OR REPLACE VIEW', v_name);
    EXCEPTION WHEN invalid_table_definition THEN
        EXECUTE format('DROP VIEW %s', v_name);
        PERFORM ai._create_view(v, 'CREATE VIEW', v_name);
        PERFORM ai._apply_grants(v_grants, v_name);
    END;
    UPDATE ai.vectorizer SET target_view = v_name::regclass, view_name = v_name WHERE id = v_old.id;
END $$;

-- The grants on a relation, as GRANT statements with %s for its name.
CREATE OR REPLACE FUNCTION ai._grants(p_relation regclass) RETURNS text[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(format('GRANT %s ON %%s TO %s%s', a.privilege_type,
        CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
        CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END))
    FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = p_relation AND a.grantee <> c.relowner
$$;

CREATE OR REPLACE FUNCTION ai._apply_grants(p_grants text[], p_relation text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_grant text;
BEGIN
    FOREACH v_grant IN ARRAY coalesce(p_grants, '{}') LOOP
        EXECUTE format(v_grant, p_relation);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION ai._copy_grants(p_from regclass, p_to regclass) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$ SELECT ai._apply_grants(ai._grants(p_from), p_to::text) $$;

-- Drop a vectorizer. Its vectors and the view are kept, unless drop_all.
CREATE OR REPLACE FUNCTION ai.drop_vectorizer(vectorizer anycompatible, drop_all boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer := ai._named(vectorizer);
BEGIN
    PERFORM ai._discard(x) FROM ai.vectorizer x WHERE x.replaces = v.id;
    PERFORM ai._discard(v, drop_all OR v.replaces IS NOT NULL);
END $$;

CREATE OR REPLACE FUNCTION ai.pause_vectorizer(vectorizer anycompatible) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE ai.vectorizer x SET paused = true FROM ai._named(vectorizer) v WHERE v.id IN (x.id, x.replaces)
$$;

-- Resume a vectorizer at once, even if it is paused, deferred or waiting for its schedule.
CREATE OR REPLACE FUNCTION ai.resume_vectorizer(vectorizer anycompatible) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE ai.vectorizer x SET paused = false, deferred_until = NULL, defer_reason = NULL, next_run_at = NULL
    FROM ai._named(vectorizer) v WHERE v.id IN (x.id, x.replaces);
    SELECT pg_notify('shiftboss_vectorizers', '')
$$;

-- Put the failed rows back into the queue, and return their number.
CREATE OR REPLACE FUNCTION ai.retry_vectorizer(vectorizer anycompatible) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
    v_count bigint := 0;
    v_more bigint;
BEGIN
    FOR v IN SELECT x.* FROM ai.vectorizer x, ai._named(vectorizer) o WHERE o.id IN (x.id, x.replaces) LOOP
        EXECUTE format('WITH failed AS (DELETE FROM ai._vectorizer_error WHERE vectorizer_id = $1 AND final RETURNING key) '
            'INSERT INTO %s (%s, due_at) SELECT %s, $2 FROM failed f ON CONFLICT DO NOTHING', ai._queue_of(v),
            ai._each_key(v, 'k%1$s'), ai._each_key(v, '(f.key ->> %2$L)::%3$s')) USING v.id, shiftboss.now();
        GET DIAGNOSTICS v_more = ROW_COUNT;
        v_count := v_count + v_more;
    END LOOP;
    PERFORM pg_notify('shiftboss_vectorizers', '');
    RETURN v_count;
END $$;
