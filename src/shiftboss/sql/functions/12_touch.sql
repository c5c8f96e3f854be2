-- Set updated_at on every UPDATE of a task that does not set it. An AFTER trigger writes such a row twice, but a BEFORE
-- trigger would make every update fetch and lock its row again, including those of our own functions, which set
-- updated_at themselves.
CREATE OR REPLACE FUNCTION shiftboss.touch_task() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE public.tasks SET updated_at = shiftboss.now() WHERE id = NEW.id AND updated_at < shiftboss.now();
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER touch_task AFTER UPDATE ON public.tasks FOR EACH ROW
    WHEN (OLD.updated_at = NEW.updated_at) EXECUTE FUNCTION shiftboss.touch_task();
