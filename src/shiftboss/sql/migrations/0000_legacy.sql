-- A `tasks` table from before Shiftboss may hold rows without a status or a type. The next migration would make those
-- runnable; here they get values that no worker takes, and are listed later (0080). Does nothing on any other database.
DO $$ BEGIN
    IF to_regclass('public.tasks') IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_attribute
            WHERE attrelid = to_regclass('public.tasks') AND attname = 'queue' AND NOT attisdropped) THEN
        RETURN;
    END IF;
    BEGIN
        UPDATE public.tasks SET status = 'Unknown' WHERE status IS NULL;
    EXCEPTION WHEN check_violation OR invalid_text_representation THEN  -- the table has an own rule for its words
        UPDATE public.tasks SET status = 'Cancelled' WHERE status IS NULL;
    END;
    UPDATE public.tasks SET task_type = '' WHERE task_type IS NULL;
END $$;
