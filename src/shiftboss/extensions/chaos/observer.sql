-- The tables and triggers of the chaos runner, in a separate schema. The fleet never reads them.

CREATE SCHEMA shiftboss_chaos;

-- One order for all changes. A change that depends on another one has a higher number.
CREATE SEQUENCE shiftboss_chaos.seq;

CREATE TABLE shiftboss_chaos.changes (
    seq bigint PRIMARY KEY DEFAULT nextval('shiftboss_chaos.seq'),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    task uuid NOT NULL,
    before text,                          -- NULL: the row was inserted
    after text,                           -- NULL: the row was deleted
    old_lease bigint,
    new_lease bigint,
    worker text
);

CREATE TABLE shiftboss_chaos.step_changes (
    seq bigint NOT NULL DEFAULT nextval('shiftboss_chaos.seq'),
    task uuid NOT NULL,
    name text NOT NULL,
    what text NOT NULL                    -- INSERT, UPDATE or DELETE
);

-- The actions of handlers. A write that is repeated after an error has the same ID.
CREATE TABLE shiftboss_chaos.ledger (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    task uuid NOT NULL,
    lease bigint NOT NULL,
    what text NOT NULL                    -- run, or the name of a step
);

-- The requests of the runner, stored before it makes them.
CREATE TABLE shiftboss_chaos.asked (task uuid NOT NULL, what text NOT NULL);

CREATE FUNCTION shiftboss_chaos.see_task() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO shiftboss_chaos.changes (task, after, new_lease, worker)
        VALUES (NEW.id, NEW.status, NEW.lease, NEW.worker_id);
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO shiftboss_chaos.changes (task, before, after, old_lease, new_lease, worker)
        VALUES (NEW.id, OLD.status, NEW.status, OLD.lease, NEW.lease, coalesce(NEW.worker_id, OLD.worker_id));
    ELSE
        INSERT INTO shiftboss_chaos.changes (task, before, old_lease) VALUES (OLD.id, OLD.status, OLD.lease);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION shiftboss_chaos.see_step() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss_chaos.step_changes (task, name, what)
    VALUES (coalesce(NEW.task_id, OLD.task_id), coalesce(NEW.name, OLD.name), TG_OP);
    RETURN NULL;
END $$;

CREATE TRIGGER chaos_insert AFTER INSERT ON public.tasks FOR EACH ROW
    WHEN (NEW.task_type LIKE 'chaos.%') EXECUTE FUNCTION shiftboss_chaos.see_task();
CREATE TRIGGER chaos_update AFTER UPDATE ON public.tasks FOR EACH ROW
    WHEN (NEW.task_type LIKE 'chaos.%' AND (OLD.status IS DISTINCT FROM NEW.status OR OLD.lease IS DISTINCT FROM NEW.lease))
    EXECUTE FUNCTION shiftboss_chaos.see_task();
CREATE TRIGGER chaos_delete AFTER DELETE ON public.tasks FOR EACH ROW
    WHEN (OLD.task_type LIKE 'chaos.%') EXECUTE FUNCTION shiftboss_chaos.see_task();
CREATE TRIGGER chaos_stored AFTER INSERT OR DELETE ON shiftboss.steps FOR EACH ROW
    EXECUTE FUNCTION shiftboss_chaos.see_step();
CREATE TRIGGER chaos_changed AFTER UPDATE ON shiftboss.steps FOR EACH ROW
    WHEN (OLD.state = 'done') EXECUTE FUNCTION shiftboss_chaos.see_step();
