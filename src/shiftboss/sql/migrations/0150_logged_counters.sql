-- The counters of sleepers must not be unlogged. PostgreSQL 15 to 18 replay the creation of an unlogged sequence on a standby
-- without writing it to disk; if that standby is promoted before its next restartpoint, every use of the sequence fails with
-- "bad magic number", and with it every enqueue and report. Counters that broke in this way are made anew.
DO $$
DECLARE
    v_name text;
BEGIN
    FOR v_name IN SELECT c.oid::pg_catalog.regclass::text FROM pg_catalog.pg_class c
        WHERE c.oid IN ('shiftboss.armed'::pg_catalog.regclass, 'shiftboss.heard'::pg_catalog.regclass) AND c.relpersistence = 'u'
    LOOP
        BEGIN
            EXECUTE pg_catalog.format('ALTER SEQUENCE %s SET LOGGED', v_name);
        EXCEPTION WHEN internal_error THEN
            EXECUTE pg_catalog.format('DROP SEQUENCE %s', v_name);
            EXECUTE pg_catalog.format('CREATE SEQUENCE %s', v_name);
        END;
    END LOOP;
END $$;
