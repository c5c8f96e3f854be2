-- Does anybody wait to be woken? Two counters that cost no lock and no WAL. They are empty after a crash or a failover, which
-- reads as "somebody sleeps". PostgreSQL 14 has no unlogged sequences.
DO $$ BEGIN
    EXECUTE format('CREATE %s SEQUENCE IF NOT EXISTS shiftboss.armed',
        CASE WHEN current_setting('server_version_num')::int >= 150000 THEN 'UNLOGGED' ELSE '' END);
    EXECUTE format('CREATE %s SEQUENCE IF NOT EXISTS shiftboss.heard',
        CASE WHEN current_setting('server_version_num')::int >= 150000 THEN 'UNLOGGED' ELSE '' END);
    IF pg_sequence_last_value('shiftboss.armed') IS NULL THEN  -- nobody sleeps yet
        PERFORM setval('shiftboss.armed', 1), setval('shiftboss.heard', 1);
    END IF;
END $$;
