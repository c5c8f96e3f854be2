-- Triggers that track changes of the source. They only append the keys of changed rows to the log: they look nothing up, and
-- never wait for a lock of a worker. Workers move the log into the queue before they claim.
--
-- PostgreSQL estimates the size of transition tables once per session, when the statement is first planned. Each function
-- therefore disables the join methods that would be very slow at another size.

-- SQL condition: an embedded column differs. Compares bytes where that is fastest; record images need no operator of the type.
CREATE OR REPLACE FUNCTION ai._changed(v ai.vectorizer, p_old text, p_new text) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format(CASE WHEN a.atttypid IN ('text'::regtype, 'varchar'::regtype)
        THEN '%1$s.%3$I COLLATE "C" IS DISTINCT FROM %2$s.%3$I COLLATE "C"'
        ELSE 'record_image_ne(ROW(%1$s.%3$I), ROW(%2$s.%3$I))' END, p_old, p_new, a.attname), ' OR ' ORDER BY a.attnum)
    FROM pg_attribute a WHERE a.attrelid = v.source_table AND a.attnum = ANY (v.watched_numbers) AND NOT a.attisdropped
$$;

-- Create a trigger function. It runs p_work while columns and target have the names it was created with, and p_else after one
-- was renamed or dropped, until the next run of a worker creates it again.
CREATE OR REPLACE FUNCTION ai._follower(v ai.vectorizer, p_kind text, p_settings text, p_work text, p_else text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION ai.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp %s AS %L', format('_follow_%s_%s', v.generation, p_kind), p_settings,
        format($body$
BEGIN
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = %s AND (%s)) OR to_regclass(%L)::oid IS DISTINCT FROM %s::oid THEN
        %s
    ELSE
        %s
    END IF;
    RETURN NULL;
END $body$, v.source_table::oid,
        (SELECT string_agg(format('attnum = %s AND attname <> %L', c.number, c.name), ' OR ')
         FROM unnest(v.key_numbers || v.watched_numbers, v.key_columns || v.watched) c (number, name)),
        v.target_table::text, v.target_table::oid, p_else, p_work));
END $$;

-- SQL that appends the keys of p_from, under their current names, to the log. With p_old, the table of the old rows, only those
-- of which an embedded column differs.
DROP FUNCTION IF EXISTS ai._log_sql(int, text);
CREATE OR REPLACE FUNCTION ai._log_sql(p_generation int, p_from text, p_old text DEFAULT NULL) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN array_position(c.key_columns, NULL) IS NOT NULL THEN 'SELECT'
                ELSE format('INSERT INTO %s SELECT %s FROM %s n %s', ai._log_of(c), ai._each_key(c, 'n.%2$I'), p_from,
                    CASE WHEN p_old IS NOT NULL THEN format('JOIN %s o ON %s WHERE %s', p_old,
                        ai._each_key(c, 'o.%2$I = n.%2$I', ' AND '), coalesce(ai._changed(c, 'o', 'n'), 'false')) END) END
    FROM ai.vectorizer v, ai._current(v) c WHERE v.generation = p_generation
$$;

-- SQL that deletes everything stored for the rows of p_rows (alias o). Entries are deleted first: that waits for a worker that
-- is writing vectors of the row, which the next statement then sees.
CREATE OR REPLACE FUNCTION ai._gone_sql(v ai.vectorizer, p_rows text) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('DELETE FROM %1$s q USING %4$s WHERE %5$s; DELETE FROM %2$s q USING %4$s WHERE %5$s; %3$s '
        'DELETE FROM ai._vectorizer_error e USING %4$s, ai.vectorizer v '
        'WHERE v.generation = %6$s AND e.vectorizer_id = v.id AND e.key = %7$s;', ai._log_of(v), ai._queue_of(v),
        ai._vectors_gone_sql(v, p_rows), p_rows, ai._each_key(v, 'q.k%1$s = o.%2$I', ' AND '), v.generation,
        ai._key_json(v, 'o.%2$I'))
$$;

CREATE OR REPLACE FUNCTION ai._vectors_gone_sql(v ai.vectorizer, p_rows text) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('DELETE FROM %s t USING %s WHERE %s;', v.target_table, p_rows, ai._each_key(v, 't.%2$I = o.%2$I', ' AND '))
$$;

-- Create the trigger functions. Above READ COMMITTED, a delete cannot see vectors that a worker has just written: it leaves an
-- entry in the log, and a worker deletes the vectors.
CREATE OR REPLACE FUNCTION ai._follow(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_notify text := 'PERFORM pg_notify(''shiftboss_vectorizers'', '''');';
    v_else text := 'EXECUTE ai._log_sql(%s, %L); ' || v_notify;
    v_insert text := format('INSERT INTO %s SELECT %s FROM', ai._log_of(v), ai._each_key(v, 'n.%2$I'));
BEGIN
    PERFORM ai._follower(v, 'insert', '', format('%s new_rows n; IF FOUND THEN %s END IF;', v_insert, v_notify),
        format(v_else, v.generation, 'new_rows'));
    PERFORM ai._follower(v, 'update', 'SET enable_nestloop = off SET enable_mergejoin = off SET jit = off', format(
        '%s new_rows n JOIN old_rows o ON %s WHERE %s; IF FOUND THEN %s END IF;', v_insert,
        ai._each_key(v, 'o.%2$I = n.%2$I', ' AND '), ai._changed(v, 'o', 'n'), v_notify),
        format('EXECUTE ai._log_sql(%s, ''new_rows'', ''old_rows''); %s', v.generation, v_notify));
    PERFORM ai._follower(v, 'delete', 'SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off',
        format('IF current_setting(''transaction_isolation'') = ''read committed'' THEN %s ELSE %s old_rows n; %s %s END IF;',
            ai._gone_sql(v, 'old_rows o'), v_insert, ai._vectors_gone_sql(v, 'old_rows o'), v_notify),
        format(v_else, v.generation, 'old_rows'));
    -- Row triggers: for partitioned tables, and for rows whose key changes (a trigger with an argument).
    PERFORM ai._follower(v, 'row', '', format($sql$IF TG_OP = 'DELETE' AND current_setting('transaction_isolation') = 'read committed' THEN
            %1$s
        ELSIF TG_OP = 'DELETE' OR TG_NARGS > 0 THEN
            %2$s (SELECT OLD.*) n; %3$s
        END IF;
        IF TG_OP <> 'DELETE' THEN
            %2$s (SELECT NEW.*) n;
        END IF;
        %4$s$sql$, ai._gone_sql(v, '(SELECT OLD.*) o'), v_insert, ai._vectors_gone_sql(v, '(SELECT OLD.*) o'), v_notify),
        format($sql$IF TG_OP <> 'INSERT' THEN
            EXECUTE ai._log_sql(%1$s, '(SELECT ($1).*)') USING OLD;
        END IF;
        IF TG_OP <> 'DELETE' THEN
            EXECUTE ai._log_sql(%1$s, '(SELECT ($1).*)') USING NEW;
        END IF;
        %2$s$sql$, v.generation, v_notify));
    EXECUTE format('CREATE OR REPLACE FUNCTION ai.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS %L', format('_follow_%s_truncate', v.generation), format(
        'BEGIN PERFORM ai._emptied(v) FROM ai.vectorizer v WHERE v.generation = %s '
        'AND EXISTS (SELECT FROM pg_class WHERE oid = v.target_table); RETURN NULL; END', v.generation));
END $$;

-- Delete everything stored for missing rows, after the source, a partition or a child was truncated.
CREATE OR REPLACE FUNCTION ai._emptied(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_any boolean;
    v_gone text := format('NOT EXISTS (SELECT FROM %s s WHERE %s)', v.source_table,
                          ai._each_key(ai._current(v), 'q.k%1$s = s.%2$I', ' AND '));
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', v.source_table) INTO v_any;
    IF NOT v_any THEN
        EXECUTE format('TRUNCATE %s, %s, %s', ai._log_of(v), ai._queue_of(v), v.target_table);
        DELETE FROM ai._vectorizer_error WHERE vectorizer_id = v.id;
        RETURN;
    END IF;
    EXECUTE format('DELETE FROM %s q WHERE %s', ai._log_of(v), v_gone);
    EXECUTE format('LOCK TABLE %s IN EXCLUSIVE MODE', ai._queue_of(v));
    EXECUTE format('DELETE FROM %s q WHERE %s', ai._queue_of(v), v_gone);
    EXECUTE format('DELETE FROM %s t WHERE NOT EXISTS (SELECT FROM %s s WHERE %s)', v.target_table, v.source_table, ai._same_key(v));
END $$;

-- Create the triggers: per statement for ordinary tables; per row for partitioned tables, since only row triggers apply to
-- changes made directly in a partition, including partitions added later.
CREATE OR REPLACE FUNCTION ai._attach(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_create text := 'CREATE TRIGGER %I AFTER %s ON %s %s EXECUTE FUNCTION ai.%I()';
    v_name text := format('_vectorizer_%s_', v.generation);
    v_function text := format('_follow_%s_', v.generation);
    v_rows text;
BEGIN
    IF (SELECT relkind = 'p' FROM pg_class WHERE oid = v.source_table) THEN
        v_rows := v_function || 'row';
        EXECUTE format(v_create, v_name || 'insert', 'INSERT', v.source_table, 'FOR EACH ROW', v_rows);
        EXECUTE format(v_create, v_name || 'delete', 'DELETE', v.source_table, 'FOR EACH ROW', v_rows);
        EXECUTE format(v_create, v_name || 'update', 'UPDATE', v.source_table,
            format('FOR EACH ROW WHEN (%s)', ai._changed(v, 'OLD', 'NEW')), v_rows);
    ELSE
        EXECUTE format(v_create, v_name || 'insert', 'INSERT', v.source_table,
            'REFERENCING NEW TABLE AS new_rows', v_function || 'insert');
        EXECUTE format(v_create, v_name || 'delete', 'DELETE', v.source_table,
            'REFERENCING OLD TABLE AS old_rows', v_function || 'delete');
        EXECUTE format(v_create, v_name || 'update', 'UPDATE', v.source_table,
            'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows', v_function || 'update');
    END IF;
    -- If the key of a row changes, delete the vectors of the old key and log both keys.
    EXECUTE format('CREATE TRIGGER %I AFTER UPDATE OF %s ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION ai.%I(''moved'')',
        v_name || 'move', ai._each_key(v, '%2$I'), v.source_table,
        ai._each_key(v, 'OLD.%2$I IS DISTINCT FROM NEW.%2$I', ' OR '), v_function || 'row');
    PERFORM ai._attach_truncate(v);
END $$;

-- Create missing TRUNCATE triggers, which each partition needs, and return whether one was missing.
CREATE OR REPLACE FUNCTION ai._attach_truncate(v ai.vectorizer) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_part regclass;
    v_name text := format('_vectorizer_%s_truncate', v.generation);
BEGIN
    FOR v_part IN SELECT p.relid FROM (SELECT v.source_table UNION SELECT relid FROM pg_partition_tree(v.source_table)) p (relid)
                  WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = p.relid AND t.tgname = v_name) LOOP
        EXECUTE format('CREATE TRIGGER %I AFTER TRUNCATE ON %s EXECUTE FUNCTION ai.%I()', v_name, v_part,
            format('_follow_%s_truncate', v.generation));
    END LOOP;
    RETURN v_part IS NOT NULL;
END $$;

-- Drop the triggers by name, then their functions: CASCADE would print a notice for each. Triggers of partitions are dropped with
-- those of their parents.
CREATE OR REPLACE FUNCTION ai._detach(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_function regprocedure;
    v_trigger record;
BEGIN
    FOR v_function IN SELECT oid FROM pg_proc WHERE pronamespace = 'ai'::regnamespace
                      AND proname ~ format('^_follow_%s(_[a-z]+)?$', v.generation) LOOP
        FOR v_trigger IN SELECT tgname, tgrelid::regclass AS source FROM pg_trigger
                         WHERE tgfoid = v_function AND tgparentid = 0 LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', v_trigger.tgname, v_trigger.source);
        END LOOP;
        EXECUTE format('DROP FUNCTION %s', v_function);
    END LOOP;
END $$;

-- Attach to partitions that were added. They may have been truncated before.
CREATE OR REPLACE FUNCTION ai._follow_partitions(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('lock_timeout', '2s', true);
    IF ai._attach_truncate(v) THEN
        PERFORM ai._emptied(v);
    END IF;
EXCEPTION WHEN lock_not_available OR insufficient_privilege THEN
    RAISE WARNING 'vectorizer %: cannot attach to a new partition of % yet: %', v.name, v.source_table, SQLERRM;
END $$;

-- Update the trigger functions after the target was renamed.
CREATE OR REPLACE FUNCTION ai._follow_target(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'ai'::regnamespace
                   AND proname = format('_follow_%s_delete', v.generation)
                   AND position(quote_literal(v.target_table::text) IN prosrc) > 0) THEN
        PERFORM ai._follow(v);
    END IF;
EXCEPTION WHEN insufficient_privilege THEN  -- until then, deletes are logged and a worker applies them
    RAISE WARNING 'vectorizer %: cannot update the triggers for its renamed target %: %', v.name, v.target_table, SQLERRM;
END $$;

-- Update the vectorizer after columns of the source were renamed.
CREATE OR REPLACE FUNCTION ai._follow_renames(v ai.vectorizer) RETURNS ai.vectorizer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    c ai.vectorizer := ai._current(v);
BEGIN
    IF c.key_columns = v.key_columns AND c.watched = v.watched OR ai._trouble(v) IS NOT NULL THEN
        RETURN v;
    END IF;
    PERFORM ai._rename_keys(v, c.key_columns);
    v := ai._renamed_columns(v);
    v := ai._checked(v);
    UPDATE ai.vectorizer x SET columns = v.columns, template = v.template, key_columns = v.key_columns, watched = v.watched,
        key_numbers = v.key_numbers, watched_numbers = v.watched_numbers WHERE x.id = v.id;
    PERFORM ai._follow(v);
    RETURN v;
END $$;

-- The row with current names in columns and template. A dropped column keeps its name.
CREATE OR REPLACE FUNCTION ai._renamed_columns(v ai.vectorizer) RETURNS ai.vectorizer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now text[] := (ai._current(v)).watched;
BEGIN
    v_now := ARRAY(SELECT coalesce(n, o) FROM unnest(v_now, v.watched) WITH ORDINALITY w (n, o, i) ORDER BY i);
    IF v.columns IS NOT NULL THEN
        v.columns := ARRAY(SELECT v_now[array_position(v.watched, x)] FROM unnest(v.columns) WITH ORDINALITY x (x, n) ORDER BY n);
    END IF;
    v.template := ai._renamed(v.template, v.watched, v_now);
    RETURN v;
END $$;

-- Rename the target's key columns like the source's. Temporary names are needed because columns may have swapped names.
CREATE OR REPLACE FUNCTION ai._rename_keys(v ai.vectorizer, p_names text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n int;
BEGIN
    FOR n IN SELECT i FROM generate_subscripts(p_names, 1) i WHERE p_names[i] <> v.key_columns[i] LOOP
        EXECUTE format('ALTER TABLE %s RENAME COLUMN %I TO %I', v.target_table, v.key_columns[n], '_key_' || n);
    END LOOP;
    FOR n IN SELECT i FROM generate_subscripts(p_names, 1) i WHERE p_names[i] <> v.key_columns[i] LOOP
        EXECUTE format('ALTER TABLE %s RENAME COLUMN %I TO %I', v.target_table, '_key_' || n, p_names[n]);
    END LOOP;
    UPDATE ai._vectorizer_error e
    SET key = (SELECT jsonb_object_agg(p_names[array_position(v.key_columns, k.name)], k.value) FROM jsonb_each(e.key) k (name, value))
    WHERE e.vectorizer_id = v.id;
END $$;

-- The template with new column names, all replaced at once.
CREATE OR REPLACE FUNCTION ai._renamed(p_template text, p_old text[], p_new text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $sql$
DECLARE
    n int;
    v_parts text[];
BEGIN
    FOR n IN SELECT i FROM generate_subscripts(p_old, 1) i WHERE p_old[i] <> p_new[i] LOOP
        v_parts := string_to_array(p_template, '$$');  -- $$ is a literal dollar sign
        p_template := array_to_string(ARRAY(SELECT regexp_replace(replace(part, format('${%s}', p_old[n]), format(E'${\x01%s}', n)),
            CASE WHEN p_old[n] ~ '^[A-Za-z_]\w*$' THEN format('\$%s\M', p_old[n]) ELSE '.\A' END, format(E'${\x01%s}', n), 'g')
            FROM unnest(v_parts) WITH ORDINALITY p (part, at) ORDER BY at), '$$');
    END LOOP;
    FOR n IN SELECT i FROM generate_subscripts(p_old, 1) i WHERE p_old[i] <> p_new[i] LOOP
        p_template := replace(p_template, format(E'${\x01%s}', n), format('${%s}', p_new[n]));
    END LOOP;
    RETURN p_template;
END $sql$;
