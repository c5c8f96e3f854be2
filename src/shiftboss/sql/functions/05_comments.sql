-- Comments of tables and views, which psql (\dt+, \dv+) and other clients show. The texts are in views/99_comments.sql.

-- Set the comment of a table or view. COMMENT conflicts with VACUUM, so a comment that is current is not set again, and
-- one that would have to wait is left to the next migration.
CREATE OR REPLACE FUNCTION shiftboss.describe(p_relation regclass, p_text text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
BEGIN
    IF obj_description(p_relation, 'pg_class') IS DISTINCT FROM p_text THEN
        EXECUTE format('COMMENT ON %s %s IS %L',
            CASE (SELECT relkind FROM pg_class WHERE oid = p_relation) WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,
            p_relation, p_text);
    END IF;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END $$;
