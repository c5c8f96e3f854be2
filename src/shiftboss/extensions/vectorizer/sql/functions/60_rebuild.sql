-- Upgrades the log and the triggers of vectorizers that an earlier version created.
DO $$
DECLARE
    v ai.vectorizer;
BEGIN
    FOR v IN SELECT * FROM ai.vectorizer WHERE generation IS NOT NULL AND build < 2 LOOP
        PERFORM ai._detach(v);
        IF EXISTS (SELECT FROM pg_class WHERE oid = v.source_table) THEN
            v := ai._checked(v);
            PERFORM ai._follow(v);
            PERFORM ai._attach(v);
        END IF;
        PERFORM ai._make_log(v);
        UPDATE ai.vectorizer x SET build = 2, key_numbers = v.key_numbers, watched_numbers = v.watched_numbers WHERE x.id = v.id;
    END LOOP;
    -- Build 4: triggers detect a renamed target and renamed columns and disable JIT; indexes are identified by name; chunks have
    -- the row-level security of their rows.
    FOR v IN SELECT * FROM ai.vectorizer x WHERE generation IS NOT NULL AND build < 4 AND ai._trouble(x) IS NULL LOOP
        v.send_dimensions := v.dimensions IS DISTINCT FROM ai._default_dimensions(v.provider, v.model);
        v.view_name := ai._view_name(v);
        PERFORM ai._follow(v);
        PERFORM ai._follow_security(v);
        PERFORM ai._name_index(v);
        UPDATE ai.vectorizer x SET build = 4, send_dimensions = v.send_dimensions, view_name = v.view_name WHERE x.id = v.id;
    END LOOP;
END $$;
