-- Supervised slots. The process of a slot writes only its own row, and only the states starting, healthy and stopping.
-- Others write crashed and failed. The setting `shiftboss.writer` names the component that writes (empty: a
-- supervisor, the leader or a person). The triggers below enforce this for all clients, including plain SQL.

CREATE OR REPLACE FUNCTION shiftboss.may_become(p_from text, p_to text) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN
    p_from = p_to OR (p_from, p_to) IN (('starting', 'healthy'), ('starting', 'crashed'),
        ('healthy', 'stopping'), ('healthy', 'crashed'), ('stopping', 'crashed'), ('crashed', 'starting'),
        ('crashed', 'failed'), ('failed', 'starting'), ('failed', 'crashed'));

CREATE OR REPLACE FUNCTION shiftboss.guard_health() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_writer text := nullif(current_setting('shiftboss.writer', true), '');
BEGIN
    IF v_writer <> coalesce(NEW.component, OLD.component) THEN
        RAISE EXCEPTION '% may not write the row of %', v_writer, coalesce(NEW.component, OLD.component)
            USING ERRCODE = 'insufficient_privilege', HINT = 'A worker may write only its own row.';
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    IF v_writer IS NOT NULL AND NEW.status IN ('crashed', 'failed') THEN
        RAISE EXCEPTION 'a worker may not set its own status to %', NEW.status
            USING ERRCODE = 'insufficient_privilege',
            HINT = 'A worker may set starting, healthy and stopping.';
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'starting' THEN
            RAISE EXCEPTION 'the first status of a worker must be starting, not %', NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.queue := coalesce(NEW.queue, substring(NEW.component FROM '^worker:(.+):[0-9]+$'));
        RETURN NEW;
    END IF;
    IF NOT shiftboss.may_become(OLD.status, NEW.status) THEN
        RAISE EXCEPTION '%: the status cannot change from % to %', OLD.component, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', HINT = 'Set it to crashed, then to starting.';
    END IF;
    IF OLD.status = 'failed' AND NEW.status <> 'failed' AND NEW.restart_count <> 0 THEN
        RAISE EXCEPTION '% is failed: only a manual restart clears this', OLD.component
            USING ERRCODE = 'check_violation', HINT = 'Run: shiftboss restart ' || OLD.component;
    END IF;
    IF v_writer IS NOT NULL AND NEW.restart_count <> OLD.restart_count THEN
        RAISE EXCEPTION 'a worker may not change its restart count' USING ERRCODE = 'insufficient_privilege';
    END IF;
    NEW.created_at := OLD.created_at;
    IF OLD.status = 'failed' AND NEW.status <> 'failed' THEN  -- a manual restart resets the restart count
        NEW.restarts := '{}';
        NEW.last_restart := NULL;
    END IF;
    IF NEW.status IN ('crashed', 'failed') THEN
        NEW.pid := NULL;
        NEW.current_job := NULL;
    ELSIF NEW.status = 'healthy' AND OLD.status = 'starting' AND NEW.details_json ? 'error_message' THEN
        NEW.details_json := NEW.details_json || '{"error_message": null}';
    END IF;
    RETURN NEW;
END $$;

-- Runs after a change: logs an event, updates the totals, and copies the pause flag to the registry, where claims read
-- it.
CREATE OR REPLACE FUNCTION shiftboss.tell_health() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused boolean := shiftboss.flag(NEW.details_json -> 'paused');
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM shiftboss.note('slot.removed', OLD.member_id, OLD.component, NULL, jsonb_build_object('pid', OLD.pid));
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        UPDATE public.workers SET paused = v_paused WHERE id = NEW.member_id AND paused <> v_paused;
        PERFORM shiftboss.note('slot.starting', NEW.member_id, NEW.component, NULL,
            jsonb_build_object('host', NEW.host));
        RETURN NULL;
    END IF;
    IF NEW.status <> OLD.status AND NEW.status <> 'starting' THEN
        PERFORM shiftboss.note('slot.' || NEW.status, NEW.member_id, NEW.component, OLD.current_job, jsonb_strip_nulls(
            jsonb_build_object('pid', coalesce(NEW.pid, OLD.pid), 'restart_count', NEW.restart_count, 'reason',
                CASE WHEN NEW.status IN ('crashed', 'failed') THEN NEW.details_json ->> 'error_message' END)));
    END IF;
    IF NEW.status = 'crashed' AND OLD.status NOT IN ('crashed', 'failed') THEN
        INSERT INTO shiftboss.slot_totals AS s (queue, crashes, last_crash)
        VALUES (coalesce(NEW.queue, ''), 1, shiftboss.epoch())
        ON CONFLICT (queue) DO UPDATE SET crashes = s.crashes + 1, last_crash = excluded.last_crash;
    END IF;
    IF v_paused <> shiftboss.flag(OLD.details_json -> 'paused') THEN
        UPDATE public.workers SET paused = v_paused WHERE id = NEW.member_id;
        PERFORM pg_notify('shiftboss_orders', coalesce(NEW.member_id, NEW.component));
        PERFORM shiftboss.note(CASE WHEN v_paused THEN 'slot.paused' ELSE 'slot.resumed' END, NEW.member_id,
            NEW.component);
    END IF;
    IF NEW.restart_ordered AND NOT OLD.restart_ordered THEN
        PERFORM shiftboss.note('slot.restart_ordered', NEW.member_id, NEW.component);
    END IF;
    IF (NEW.restart_ordered AND NOT OLD.restart_ordered) OR (OLD.status = 'failed' AND NEW.status <> 'failed') THEN
        PERFORM pg_notify('shiftboss_health', coalesce(NEW.host, ''));
    END IF;
    RETURN NULL;
END $$;

-- Pause a process of a paused slot as soon as it registers.
CREATE OR REPLACE FUNCTION shiftboss.join_paused() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.paused := NEW.paused OR EXISTS (SELECT FROM public.health h
        WHERE h.member_id = NEW.id AND shiftboss.flag(h.details_json -> 'paused'));
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER guard_health BEFORE INSERT OR UPDATE OR DELETE ON public.health
    FOR EACH ROW EXECUTE FUNCTION shiftboss.guard_health();
CREATE OR REPLACE TRIGGER tell_health AFTER INSERT OR UPDATE OR DELETE ON public.health
    FOR EACH ROW EXECUTE FUNCTION shiftboss.tell_health();
CREATE OR REPLACE TRIGGER join_paused BEFORE INSERT ON public.workers
    FOR EACH ROW EXECUTE FUNCTION shiftboss.join_paused();

CREATE OR REPLACE FUNCTION shiftboss.write_as(p_by text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$ SELECT set_config('shiftboss.writer', coalesce(p_by, ''), true) $$;

CREATE OR REPLACE FUNCTION shiftboss.no_worker(p_component text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'there is no worker %', p_component USING ERRCODE = 'no_data_found',
        HINT = '`shiftboss slots` lists the workers.';
END $$;

-- Register the process of a slot. It takes over the row and the history of a previous process.
CREATE OR REPLACE FUNCTION shiftboss.register_worker(p_component text, p_pid int, p_status text DEFAULT 'starting',
    p_details jsonb DEFAULT NULL, p_host text DEFAULT NULL, p_process text DEFAULT NULL, p_by text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h public.health;
BEGIN
    PERFORM shiftboss.write_as(p_by);
    SELECT * INTO h FROM public.health WHERE component = p_component FOR UPDATE;
    IF h.host <> p_host THEN
        RAISE EXCEPTION '% is a slot of host %', p_component, h.host USING ERRCODE = 'insufficient_privilege',
            HINT = 'A slot belongs to one host: start this worker under another number.';
    END IF;
    IF h.status IN ('healthy', 'stopping') THEN
        DELETE FROM public.health WHERE component = p_component;
    END IF;
    INSERT INTO public.health AS x (component, pid, status, details_json, process, restart_count, last_restart,
        created_at,
        queue, host, member_id, restarts)
    VALUES (p_component, p_pid, p_status, nullif(coalesce(h.details_json, '{}') || coalesce(p_details, '{}'), '{}'),
        p_process,
        coalesce(h.restart_count, 0), h.last_restart, coalesce(h.created_at, shiftboss.epoch()), h.queue,
        coalesce(h.host, p_host), h.member_id, coalesce(h.restarts, '{}'))
    ON CONFLICT (component) DO UPDATE SET status = excluded.status, pid = excluded.pid, last_seen = shiftboss.epoch(),
        details_json = excluded.details_json, process = coalesce(excluded.process, x.process), current_job = NULL;
    PERFORM shiftboss.write_as(NULL);
END $$;

-- Record a heartbeat. Returns no row if the slot does not exist or belongs to another process than p_pid.
CREATE OR REPLACE FUNCTION shiftboss.update_heartbeat(p_component text, p_status text DEFAULT 'healthy',
    p_current_job uuid DEFAULT NULL, p_keep_job boolean DEFAULT false, p_pid int DEFAULT NULL,
        p_details jsonb DEFAULT NULL,
    p_by text DEFAULT NULL) RETURNS TABLE (status text, paused boolean) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM shiftboss.write_as(p_by);
    RETURN QUERY UPDATE public.health h SET last_seen = shiftboss.epoch(), status = p_status,
        current_job = CASE WHEN p_keep_job THEN h.current_job ELSE p_current_job END,
        details_json = CASE WHEN p_details IS NULL THEN h.details_json ELSE coalesce(h.details_json, '{}')
            || p_details END
    WHERE h.component = p_component AND (p_pid IS NULL OR h.pid = p_pid)
    RETURNING h.status, shiftboss.flag(h.details_json -> 'paused');
    PERFORM shiftboss.write_as(NULL);
END $$;

CREATE OR REPLACE FUNCTION shiftboss.update_status(p_component text, p_status text, p_pid int DEFAULT NULL,
    p_reason text DEFAULT NULL, p_process text DEFAULT NULL, p_by text DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shiftboss.write_as(p_by);
    UPDATE public.health SET status = p_status, pid = coalesce(p_pid, pid), process = coalesce(p_process, process),
        last_seen = CASE p_status WHEN 'starting' THEN shiftboss.epoch() ELSE last_seen END,
        details_json = CASE WHEN p_reason IS NULL THEN details_json
            ELSE coalesce(details_json, '{}') || jsonb_build_object('error_message', p_reason) END
    WHERE component = p_component;
    IF NOT FOUND THEN
        PERFORM shiftboss.no_worker(p_component);
    END IF;
    PERFORM shiftboss.write_as(NULL);
END $$;

-- Record which process runs in a slot, as soon as it is started.
CREATE OR REPLACE FUNCTION shiftboss.name_process(p_component text, p_pid int, p_process text) RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.health SET pid = p_pid, process = p_process
    WHERE component = p_component AND status NOT IN ('crashed', 'failed')
$$;

-- Merge keys into the details of a slot.
CREATE OR REPLACE FUNCTION shiftboss.update_details(p_component text, p_details jsonb, p_by text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shiftboss.write_as(p_by);
    UPDATE public.health SET details_json = coalesce(details_json, '{}') || p_details WHERE component = p_component;
    IF NOT FOUND THEN
        PERFORM shiftboss.no_worker(p_component);
    END IF;
    PERFORM shiftboss.write_as(NULL);
END $$;

-- Count an automatic restart. With p_after, only if the count still equals it, so that a call can be repeated.
CREATE OR REPLACE FUNCTION shiftboss.increment_restart_count(p_component text, p_after int DEFAULT NULL) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h public.health;
BEGIN
    UPDATE public.health SET restart_count = restart_count + 1, last_restart = shiftboss.epoch(),
        restarts = (restarts || shiftboss.epoch())[greatest(cardinality(restarts) - 98, 1):]
    WHERE component = p_component AND status <> 'failed' AND (p_after IS NULL OR restart_count = p_after) RETURNING *
        INTO h;
    IF NOT FOUND THEN
        SELECT * INTO h FROM public.health WHERE component = p_component;
        IF h.restart_count <> p_after THEN
            RETURN h.restart_count;
        ELSIF h.status = 'failed' THEN
            RAISE EXCEPTION '% is failed and cannot be restarted automatically', p_component
                USING ERRCODE = 'check_violation', HINT = 'Run: shiftboss restart ' || p_component;
        END IF;
        PERFORM shiftboss.no_worker(p_component);
    END IF;
    INSERT INTO shiftboss.slot_totals AS s (queue, restarts) VALUES (coalesce(h.queue, ''), 1)
    ON CONFLICT (queue) DO UPDATE SET restarts = s.restarts + 1;
    PERFORM shiftboss.note('slot.restarted', h.member_id, h.component, NULL,
        jsonb_build_object('restart_count', h.restart_count));
    RETURN h.restart_count;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.remove_worker(p_component text, p_pid int DEFAULT NULL, p_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_found boolean;
BEGIN
    PERFORM shiftboss.write_as(p_by);
    DELETE FROM public.health WHERE component = p_component AND (p_pid IS NULL OR pid = p_pid);
    v_found := FOUND;
    PERFORM shiftboss.write_as(NULL);
    RETURN v_found;
END $$;

-- Mark a dead or hung process as crashed and requeue its tasks. With p_last_seen, only if it has sent no heartbeat
-- since. p_suspects are the leases that may be the cause, as for shiftboss.judge. Returns whether it was marked.
CREATE OR REPLACE FUNCTION shiftboss.mark_crashed(p_component text, p_reason text, p_outcome text DEFAULT 'crashed',
    p_last_seen double precision DEFAULT NULL, p_suspects bigint[] DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h public.health;
BEGIN
    SELECT * INTO h FROM public.health WHERE component = p_component
        AND (p_last_seen IS NULL OR last_seen = p_last_seen) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Lock the worker's row before its tasks, like leave() and register().
    UPDATE public.workers SET status = 'inactive', pid = NULL, lease_expires_at = NULL
        WHERE id = coalesce(h.member_id, h.component) AND status = 'active';
    PERFORM shiftboss.worker_died(coalesce(h.member_id, h.component), p_outcome, p_reason, p_suspects);
    IF h.status IN ('crashed', 'failed') THEN
        RETURN false;
    END IF;
    PERFORM shiftboss.update_status(p_component, 'crashed', NULL, p_reason);
    RETURN true;
END $$;
