-- Reject rows that clients cannot read: any client may write to the registry, and one such row would hide all others.
CREATE OR REPLACE FUNCTION shiftboss.refuse_worker() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'worker "%": capabilities, limits and usage must be JSON objects, and last_heartbeat finite',
        NEW.id USING ERRCODE = 'invalid_parameter_value';
END $$;

CREATE OR REPLACE TRIGGER refuse_worker AFTER INSERT OR UPDATE ON public.workers FOR EACH ROW
    WHEN (jsonb_typeof(NEW.capabilities) <> 'object' OR jsonb_typeof(NEW.resource_limits) <> 'object'
        OR jsonb_typeof(NEW.resource_usage) <> 'object' OR NOT isfinite(NEW.last_heartbeat))
    EXECUTE FUNCTION shiftboss.refuse_worker();
