-- Tracked runs. A run is executed by a task, and triggers on the task update the run, so that it ends with its task even if the
-- worker dies. The transitions are pending → running → finished | failed, and pending → failed.

-- Enforce valid transitions and progress for all clients: 0–99 and never decreasing while running, 100 when finished, unchanged
-- when failed.
CREATE OR REPLACE FUNCTION shiftboss.guard_run() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.progress := CASE NEW.status WHEN 'finished' THEN 100 ELSE least(greatest(coalesce(NEW.progress, 0), 0), 99) END;
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN
        (('pending', 'running'), ('pending', 'failed'), ('running', 'finished'), ('running', 'failed')) THEN
        RAISE EXCEPTION 'run % is % and cannot become %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Start a new run: shiftboss runs retry ' || OLD.id;
    END IF;
    NEW.progress := CASE
        WHEN NEW.status = 'finished' THEN 100
        WHEN NEW.status = 'running' THEN greatest(OLD.progress, least(greatest(coalesce(NEW.progress, 0), 0), 99))
        ELSE OLD.progress END;
    IF OLD.status <> 'running' AND NEW.status = 'running' THEN
        NEW.started_at := coalesce(NEW.started_at, shiftboss.now());
    ELSIF OLD.status IN ('pending', 'running') AND NEW.status IN ('finished', 'failed') THEN
        NEW.finished_at := coalesce(NEW.finished_at, shiftboss.now());
    END IF;
    RETURN NEW;
END $$;

-- Notify the channel shiftboss_runs of every change, and record changes of status as events of the fleet.
CREATE OR REPLACE FUNCTION shiftboss.announce_run() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('shiftboss_runs', NEW.id::text);
    IF TG_OP = 'INSERT' OR NEW.status <> OLD.status THEN
        PERFORM shiftboss.note('run.' || NEW.status, NULL, NULL, NEW.task_id, jsonb_strip_nulls(jsonb_build_object(
            'run_id', NEW.id, 'bot', NEW.bot, 'city', NEW.city, 'category', NEW.category, 'error', NEW.error_message)));
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER guard_run BEFORE INSERT OR UPDATE ON public.worker_runs
    FOR EACH ROW EXECUTE FUNCTION shiftboss.guard_run();
CREATE OR REPLACE TRIGGER announce_run_made AFTER INSERT ON public.worker_runs
    FOR EACH ROW EXECUTE FUNCTION shiftboss.announce_run();
CREATE OR REPLACE TRIGGER announce_run AFTER UPDATE ON public.worker_runs
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION shiftboss.announce_run();

-- The message of an error text, without the traceback that follows it. A text that is only a traceback ends with its message.
CREATE OR REPLACE FUNCTION shiftboss.error_summary(p_error text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT left(CASE WHEN p_error ~ '^\s*(Traceback \(most recent call last\)|\+ Exception Group Traceback)'
        THEN coalesce(substring(btrim(p_error, E' \n\t') from '[^\n]*$'), p_error)
        ELSE regexp_replace(p_error, '\n\n(…|Traceback \(most recent call last\)|\+ Exception Group Traceback).*$', '') END,
        CASE WHEN strpos(p_error, '$enc:') > 0 THEN 20000 ELSE 2000 END)
$$;

-- Update the run when its task changes. If the task is deferred (its worker stopped, or a provider is limited), the run remains
-- running.
CREATE OR REPLACE FUNCTION shiftboss.follow_task() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.status = 'In Progress' THEN
        UPDATE public.worker_runs SET status = 'running', progress = coalesce(NEW.progress, 0),
            message = coalesce(NEW.progress_message, message)
        WHERE id = NEW.run_id AND status IN ('pending', 'running')
          AND (status = 'pending' OR NEW.progress > progress OR NEW.progress_message IS DISTINCT FROM message);
    ELSIF NEW.status = 'Complete' THEN
        UPDATE public.worker_runs SET status = 'finished', counters = counters || CASE
            WHEN jsonb_typeof(NEW.result_data -> 'counters') = 'object' THEN NEW.result_data -> 'counters' ELSE '{}' END
        WHERE id = NEW.run_id AND status = 'running';
    ELSIF NEW.status IN ('Failed', 'Cancelled') THEN
        UPDATE public.worker_runs SET status = 'failed', error_message = CASE NEW.status
            WHEN 'Cancelled' THEN 'cancelled' || coalesce(': ' || shiftboss.error_summary(NEW.error_message), '')
            ELSE coalesce(shiftboss.error_summary(NEW.error_message), 'its task failed') END
        WHERE id = NEW.run_id AND status IN ('pending', 'running');
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER follow_task AFTER UPDATE OF status, progress ON public.tasks FOR EACH ROW
    WHEN (NEW.run_id IS NOT NULL AND (OLD.status <> NEW.status OR OLD.progress IS DISTINCT FROM NEW.progress))
    EXECUTE FUNCTION shiftboss.follow_task();

-- Reject retries of a task whose run has ended: a run is retried as a new run. An AFTER trigger, because a BEFORE trigger makes
-- every update of a task fetch and lock its row again, even if its condition is false.
CREATE OR REPLACE FUNCTION shiftboss.keep_run_task() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'task % belongs to run %, which has ended', OLD.id, OLD.run_id
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Start a new run: shiftboss runs retry ' || OLD.run_id;
END $$;

CREATE OR REPLACE TRIGGER keep_run_task AFTER UPDATE OF status ON public.tasks FOR EACH ROW
    WHEN (NEW.run_id IS NOT NULL AND NEW.status = 'Queued' AND OLD.status IN ('Complete', 'Failed', 'Cancelled'))
    EXECUTE FUNCTION shiftboss.keep_run_task();

-- Create a run and its task. If the same job is already pending or running, return the id of its run with created = false.
CREATE OR REPLACE FUNCTION shiftboss.start_run(p_bot text, p_city text, p_category text, p_params jsonb, p_queue text,
    p_requested_by text DEFAULT NULL, p_retry_of uuid DEFAULT NULL, p_checkpoint jsonb DEFAULT NULL)
RETURNS TABLE (id uuid, created boolean) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    LOOP
        INSERT INTO public.worker_runs (bot, city, category, params, requested_by, retry_of, checkpoint)
        VALUES (p_bot, p_city, p_category, coalesce(p_params, '{}'), p_requested_by, p_retry_of, p_checkpoint)
        ON CONFLICT (bot, coalesce(city, ''), coalesce(category, ''), md5(params::text))
            WHERE status IN ('pending', 'running') DO NOTHING
        RETURNING worker_runs.id INTO id;
        IF FOUND THEN
            PERFORM shiftboss.task_of_run(id, p_queue);
            created := true;
            RETURN NEXT;
            RETURN;
        END IF;
        SELECT r.id, false INTO id, created FROM public.worker_runs r
        WHERE r.bot = p_bot AND coalesce(r.city, '') = coalesce(p_city, '')
          AND coalesce(r.category, '') = coalesce(p_category, '') AND md5(r.params::text) = md5(coalesce(p_params, '{}')::text)
          AND r.status IN ('pending', 'running');
        IF FOUND THEN  -- otherwise it has just ended: try the insert again
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- The task of a pending run, created if there is none because the row was inserted by hand. It has one attempt, so that failures
-- are visible as failed runs.
CREATE OR REPLACE FUNCTION shiftboss.task_of_run(p_run uuid, p_queue text DEFAULT 'default') RETURNS uuid LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r public.worker_runs;
BEGIN
    r := shiftboss.get_run(p_run, true);
    IF r.task_id IS NULL AND r.status = 'pending' THEN
        r.task_id := gen_random_uuid();
        UPDATE public.worker_runs SET task_id = r.task_id WHERE id = p_run;
        PERFORM shiftboss.enqueue(jsonb_build_array(jsonb_build_object('id', r.task_id, 'task_type', 'bot.' || r.bot,
            'params', r.params || jsonb_strip_nulls(jsonb_build_object('city', r.city, 'category', r.category)),
            'queue', p_queue, 'run_id', p_run, 'origin', 'user_requested', 'max_attempts', 1)));
    END IF;
    RETURN r.task_id;
END $$;

-- Fill in unset values of a pending run and its task. Encrypted params contain the former ones already. Returns the id of the task, or NULL if the run has started.
CREATE OR REPLACE FUNCTION shiftboss.amend_run(p_run uuid, p_city text, p_category text, p_params jsonb) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_task uuid := (SELECT task_id FROM public.worker_runs WHERE id = p_run);
BEGIN
    IF v_task IS NULL THEN
        v_task := shiftboss.task_of_run(p_run);
    END IF;
    -- Lock the task before the run, as a claim does.
    PERFORM FROM public.tasks WHERE id = v_task AND status = 'Queued' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE public.worker_runs SET city = coalesce(city, p_city), category = coalesce(category, p_category),
        params = CASE WHEN p_params ? '$enc' THEN p_params ELSE p_params || params END WHERE id = p_run AND status = 'pending';
    UPDATE public.tasks t SET params = r.params || jsonb_strip_nulls(jsonb_build_object('city', r.city, 'category', r.category))
    FROM public.worker_runs r WHERE r.id = p_run AND t.id = v_task;
    RETURN v_task;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.get_run(p_run uuid, p_lock boolean DEFAULT false) RETURNS public.worker_runs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r public.worker_runs;
BEGIN
    IF p_lock THEN
        SELECT * INTO r FROM public.worker_runs WHERE id = p_run FOR UPDATE;
    ELSE
        SELECT * INTO r FROM public.worker_runs WHERE id = p_run;
    END IF;
    IF r.id IS NULL THEN
        RAISE EXCEPTION 'there is no run %', p_run USING ERRCODE = 'no_data_found', HINT = 'To list runs: shiftboss runs list';
    END IF;
    RETURN r;
END $$;

-- Store the progress that a worker reports. Returns false if its lease on the task is no longer valid: the worker must stop.
CREATE OR REPLACE FUNCTION shiftboss.report_run(p_run uuid, p_lease bigint, p_percent int, p_counters jsonb DEFAULT NULL,
    p_checkpoint jsonb DEFAULT NULL, p_message text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM public.tasks t WHERE t.run_id = p_run AND t.lease = p_lease AND t.status = 'In Progress' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE public.worker_runs SET progress = p_percent, counters = coalesce(p_counters, counters),
        checkpoint = coalesce(p_checkpoint, checkpoint), message = coalesce(p_message, message)
    WHERE id = p_run AND status = 'running';
    RETURN FOUND;
END $$;

-- Cancel a run: a queued task ends at once, a running one when its worker stops it. Returns the updated run.
CREATE OR REPLACE FUNCTION shiftboss.cancel_run(p_run uuid, p_reason text DEFAULT NULL) RETURNS public.worker_runs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r public.worker_runs := shiftboss.get_run(p_run);
BEGIN
    IF r.status IN ('finished', 'failed') THEN
        RAISE EXCEPTION 'run % has already ended: it is %', p_run, r.status USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM shiftboss.cancel(ARRAY[r.task_id], p_reason);
    IF NOT EXISTS (SELECT FROM public.tasks WHERE id = r.task_id AND status = 'In Progress') THEN  -- no worker holds it
        UPDATE public.worker_runs SET status = 'failed', error_message = 'cancelled' || coalesce(': ' || p_reason, '')
        WHERE id = p_run AND status IN ('pending', 'running');
    END IF;
    RETURN shiftboss.get_run(p_run);
END $$;

-- Retry a run that has ended, as a new run that refers to it and continues where it stopped.
CREATE OR REPLACE FUNCTION shiftboss.retry_run(p_run uuid, p_queue text, p_requested_by text DEFAULT NULL)
RETURNS TABLE (id uuid, created boolean) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r public.worker_runs := shiftboss.get_run(p_run);
BEGIN
    IF r.status IN ('pending', 'running') THEN
        RAISE EXCEPTION 'run % is still %', p_run, r.status USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Wait until it ends, or cancel it: shiftboss runs cancel ' || p_run;
    END IF;
    RETURN QUERY SELECT * FROM shiftboss.start_run(r.bot, r.city, r.category, r.params, p_queue, p_requested_by, p_run,
        CASE r.status WHEN 'failed' THEN r.checkpoint END);
END $$;

-- List runs, newest first.
CREATE OR REPLACE FUNCTION shiftboss.list_runs(p_bot text DEFAULT NULL, p_status text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_limit int DEFAULT 50, p_offset bigint DEFAULT 0)
RETURNS SETOF public.worker_runs LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM public.worker_runs WHERE (p_bot IS NULL OR bot = p_bot) AND (p_status IS NULL OR status = p_status)
        AND (p_since IS NULL OR created_at >= p_since)
    ORDER BY created_at DESC, id DESC LIMIT p_limit OFFSET p_offset;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.count_runs(p_bot text DEFAULT NULL, p_status text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL) RETURNS bigint LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FROM public.worker_runs WHERE (p_bot IS NULL OR bot = p_bot)
        AND (p_status IS NULL OR status = p_status) AND (p_since IS NULL OR created_at >= p_since)
$$;
