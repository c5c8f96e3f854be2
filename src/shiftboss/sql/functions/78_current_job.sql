-- Clear `current_job` of a slot unless its worker holds this task, which may have just ended. The heartbeat itself
-- still counts.
CREATE OR REPLACE FUNCTION shiftboss.check_current_job() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = NEW.current_job AND t.status = 'In Progress'
            AND t.worker_id = coalesce(NEW.member_id, NEW.component)) THEN
        NEW.current_job := NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER check_current_job BEFORE INSERT OR UPDATE OF current_job ON public.health
    FOR EACH ROW WHEN (NEW.current_job IS NOT NULL) EXECUTE FUNCTION shiftboss.check_current_job();
