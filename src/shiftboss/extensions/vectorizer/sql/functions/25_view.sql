-- The view that joins a source with its vectors, and its security. Readers of the view need privileges on both tables, and
-- the row-level security policies of their role apply.

CREATE OR REPLACE FUNCTION ai._view_sql(v ai.vectorizer) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('SELECT %s, t.chunk_seq, t.chunk, t.embedding FROM %s t JOIN %s s ON %s',
        string_agg(format('s.%I AS %I', attname, CASE WHEN attname IN ('chunk_seq', 'chunk', 'embedding')
                                                      THEN 'source_' || attname ELSE attname END), ', ' ORDER BY attnum),
        v.target_table, v.source_table, ai._same_key(v))
    FROM pg_attribute WHERE attrelid = v.source_table AND attnum > 0 AND NOT attisdropped
$$;

-- Create the joining view; p_create is CREATE VIEW or CREATE OR REPLACE VIEW. Before PostgreSQL 15, the view has the privileges of
-- its owner.
CREATE OR REPLACE FUNCTION ai._create_view(v ai.vectorizer, p_create text, p_name text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_invoker boolean := current_setting('server_version_num')::int >= 150000;
BEGIN
    EXECUTE format('%s %s %s AS %s', p_create, p_name, CASE WHEN v_invoker THEN 'WITH (security_invoker = true)' ELSE '' END,
        ai._view_sql(v));
    IF NOT v_invoker THEN
        RAISE WARNING 'view % bypasses row-level security on %', p_name, v.source_table
            USING HINT = 'Grant this view with care, or upgrade to PostgreSQL 15, where views apply the reader''s policies.';
    END IF;
END $$;

-- The quoted name of the view; its last known name if the view was dropped.
CREATE OR REPLACE FUNCTION ai._view_name(v ai.vectorizer) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                     WHERE c.oid = v.target_view), v.view_name)
$$;

-- If the source has row-level security, make each chunk visible only to roles that can see its row. The owner of the tables,
-- which workers run as, sees everything.
CREATE OR REPLACE FUNCTION ai._follow_security(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT (SELECT relrowsecurity FROM pg_class WHERE oid = v.source_table) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = v.target_table AND polname = 'source_is_visible') THEN
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', v.target_table);
        EXECUTE format('CREATE POLICY source_is_visible ON %s FOR SELECT USING (EXISTS (SELECT FROM %s s WHERE %s))',
            v.target_table, v.source_table, ai._same_key(v, (SELECT format('%I', relname) FROM pg_class WHERE oid = v.target_table)));
    END IF;
    IF current_setting('server_version_num')::int >= 150000 AND EXISTS (SELECT FROM pg_class WHERE oid = v.target_view
           AND NOT coalesce(reloptions::text[] && '{security_invoker=true,security_invoker=on}', false)) THEN
        EXECUTE format('ALTER VIEW %s SET (security_invoker = true)', v.target_view);
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'vectorizer %: cannot apply the row-level security of %: %', v.name, v.source_table, SQLERRM;
END $$;

-- Lock all tables of a vectorizer exclusively. Workers and writers take these locks in different orders, so if another table is
-- locked, the lock on the source is released before the next try: waiting would be a deadlock.
CREATE OR REPLACE FUNCTION ai._lock_all(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n int;
BEGIN
    FOR n IN 1..400 LOOP
        BEGIN
            IF EXISTS (SELECT FROM pg_class WHERE oid = v.source_table) THEN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', v.source_table);
            END IF;
            EXECUTE format('LOCK TABLE %s, %s, %s IN ACCESS EXCLUSIVE MODE NOWAIT', ai._log_of(v), ai._queue_of(v), v.target_table);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.05);
        END;
    END LOOP;
    RAISE EXCEPTION 'the tables of vectorizer % are in use', v.name USING ERRCODE = 'lock_not_available',
        HINT = format('Try again, or first run: SELECT ai.pause_vectorizer(%s)', v.id);
END $$;

-- Detach a vectorizer from its source, so that types of columns can be changed, and columns or the table be dropped. Drops
-- triggers and view; keeps vectors, queue and failed rows. Reattach it with ai.attach_vectorizer, best in the same transaction.
CREATE OR REPLACE FUNCTION ai.detach_vectorizer(vectorizer anycompatible) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer := ai._named(vectorizer);
BEGIN
    IF v.replaces IS NOT NULL OR EXISTS (SELECT FROM ai.vectorizer x WHERE x.replaces = v.id) THEN
        RAISE EXCEPTION 'vectorizer % is being updated', v.name USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Wait until its state is no longer "updating", or revert the change with ai.update_vectorizer.';
    END IF;
    PERFORM ai._lock_all(v);
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = v.id FOR UPDATE;
    IF v.detached IS NOT NULL THEN
        RETURN;
    END IF;
    v := ai._follow_renames(v);
    UPDATE ai.vectorizer x SET view_name = ai._view_name(v), detached = jsonb_build_object(
        'transaction', pg_current_xact_id()::text, 'grants', ai._grants(v.target_view), 'types', ai._watched_types(v))
    WHERE x.id = v.id;
    PERFORM ai._detach(v);
    IF EXISTS (SELECT FROM pg_class WHERE oid = v.target_view) THEN
        EXECUTE format('DROP VIEW %s', v.target_view);
    END IF;
    EXECUTE format('DROP POLICY IF EXISTS source_is_visible ON %s', v.target_table);
END $$;

-- The types of the embedded columns, with all string types as one: converting between them does not change the text.
CREATE OR REPLACE FUNCTION ai._watched_types(v ai.vectorizer) RETURNS jsonb LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_agg(CASE t.typcategory WHEN 'S' THEN 'text' ELSE format_type(a.atttypid, a.atttypmod) END ORDER BY a.attnum)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = v.source_table AND a.attnum = ANY (v.watched_numbers) AND NOT a.attisdropped
$$;

-- Attach a vectorizer to its source again, or to another table with the same key and columns. In the transaction that detached
-- it, nothing is embedded again unless types of embedded columns changed; otherwise all rows are, since changes were not tracked.
CREATE OR REPLACE FUNCTION ai.attach_vectorizer(vectorizer anycompatible, source regclass DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer := ai._named(vectorizer);
    v_new ai.vectorizer;
    v_was jsonb;
BEGIN
    IF v.detached IS NULL THEN
        PERFORM ai.detach_vectorizer(v.id);
    END IF;
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = v.id FOR UPDATE;
    v_was := v.detached;
    v_new := v;
    v_new.detached := NULL;
    v_new.source_table := coalesce(source, v.source_table);
    IF source IS NULL OR source = v.source_table THEN
        v_new := ai._renamed_columns(v_new);
    END IF;
    v_new := ai._checked(v_new);
    PERFORM ai._lock_all(v_new);
    PERFORM ai._retype_keys(v, v_new);
    UPDATE ai.vectorizer x SET detached = NULL, source_table = v_new.source_table, columns = v_new.columns,
        template = v_new.template, watched = v_new.watched, watched_numbers = v_new.watched_numbers,
        key_columns = v_new.key_columns, key_types = v_new.key_types, key_numbers = v_new.key_numbers WHERE x.id = v.id;
    PERFORM ai._create_view(v_new, 'CREATE VIEW', v_new.view_name);
    UPDATE ai.vectorizer x SET target_view = v_new.view_name::regclass WHERE x.id = v.id RETURNING x.target_view INTO v_new.target_view;
    PERFORM ai._apply_grants(ARRAY(SELECT jsonb_array_elements_text(nullif(v_was -> 'grants', 'null'))), v_new.view_name);
    PERFORM ai._follow_security(v_new);
    PERFORM ai._follow(v_new);
    PERFORM ai._attach(v_new);
    IF v_new.source_table <> v.source_table OR v_was ->> 'transaction' <> pg_current_xact_id()::text
       OR v_was -> 'types' <> ai._watched_types(v_new) THEN
        PERFORM ai._emptied(v_new);
        PERFORM ai._queue_all(v_new);
    END IF;
END $$;

-- Change key columns of target, log and queue to the names and types of the source.
CREATE OR REPLACE FUNCTION ai._retype_keys(v ai.vectorizer, v_new ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n int;
BEGIN
    IF cardinality(v.key_columns) <> cardinality(v_new.key_columns) THEN
        RAISE EXCEPTION 'the primary key of % has % columns, that of the vectors has %', v_new.source_table,
            cardinality(v_new.key_columns), cardinality(v.key_columns) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Create a new vectorizer for this table.';
    END IF;
    PERFORM ai._rename_keys(v, v_new.key_columns);
    FOR n IN SELECT i FROM generate_subscripts(v.key_types, 1) i WHERE v.key_types[i] <> v_new.key_types[i] LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %2$I TYPE %3$s USING %2$I::%3$s', v.target_table, v_new.key_columns[n],
            v_new.key_types[n]);
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %2$s TYPE %3$s USING %2$s::%3$s', ai._queue_of(v), 'k' || n, v_new.key_types[n]);
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %2$s TYPE %3$s USING %2$s::%3$s', ai._log_of(v), 'k' || n, v_new.key_types[n]);
    END LOOP;
END $$;
