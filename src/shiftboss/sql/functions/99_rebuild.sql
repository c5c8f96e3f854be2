-- Vectorizers made by an earlier version get the log and the triggers of this one, once.
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
    -- and triggers that know when the target has another name
    FOR v IN SELECT * FROM ai.vectorizer x WHERE generation IS NOT NULL AND build = 2 AND ai._trouble(x) IS NULL LOOP
        PERFORM ai._follow(v);
        UPDATE ai.vectorizer x SET build = 3 WHERE x.id = v.id;
    END LOOP;
END $$;
