-- Which fleet this database is, and where it was made. A dump that is restored elsewhere carries the row along, and the
-- place no longer fits: see shiftboss.adopt.
CREATE TABLE IF NOT EXISTS shiftboss.installation (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT installation_only_row CHECK (only_row),
    identity uuid NOT NULL DEFAULT gen_random_uuid(),
    system_identifier bigint,         -- NULL: the role that made the row may not read it
    database_oid oid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    adopted_at timestamptz
);

DO $$
DECLARE
    v_system bigint;
BEGIN
    IF has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') THEN
        SELECT c.system_identifier INTO v_system FROM pg_catalog.pg_control_system() c;
    END IF;
    INSERT INTO shiftboss.installation (system_identifier, database_oid)
    SELECT v_system, d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database() ON CONFLICT DO NOTHING;
END $$;
