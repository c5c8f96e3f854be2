-- Tasks with dedup_for or debounce.

-- dedup_for: the key stays reserved for this time from now, even after the task has completed. A failed or cancelled
-- task releases it. debounce: the task starts this long after the last call, with the params of the last call, but at
-- most debounce_max after the first. A running task keeps its params: a new task follows it, and if it fails, it is
-- not retried. Called by shiftboss.enqueue for one task.
CREATE OR REPLACE FUNCTION shiftboss.enqueue_unique(p_task jsonb, p_tries int) RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_key text := p_task ->> 'dedup_key';
    v_id uuid := coalesce((p_task ->> 'id')::uuid, gen_random_uuid());
    v_for interval := (p_task ->> 'dedup_for')::interval;
    v_debounce interval := (p_task ->> 'debounce')::interval;
    v_plain jsonb := p_task - '{dedup_for,debounce,debounce_max}'::text[] || jsonb_build_object('id', v_id);
BEGIN
    IF v_key IS NULL OR (v_for IS NULL) = (v_debounce IS NULL) OR coalesce(v_for, v_debounce) <= interval '0' THEN
        RAISE EXCEPTION 'dedup_for and debounce exclude each other, must be positive, and need a dedup_key'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_for IS NOT NULL THEN
        INSERT INTO shiftboss.unique_keys AS k (dedup_key, task_id, until) VALUES (v_key, v_id, v_now + v_for)
        ON CONFLICT (dedup_key) DO UPDATE SET task_id = excluded.task_id, until = excluded.until
        WHERE k.until <= v_now OR EXISTS (
            SELECT FROM public.tasks t WHERE t.id = k.task_id AND t.status IN ('Failed', 'Cancelled'));
        IF NOT FOUND THEN
            RETURN QUERY SELECT k.task_id, false FROM shiftboss.unique_keys k WHERE k.dedup_key = v_key;
            RETURN;
        END IF;
        SELECT e.id, e.created INTO id, created FROM shiftboss.enqueue(jsonb_build_array(v_plain)) e;
        IF NOT created THEN  -- an older unfinished task has the key: it takes the reservation
            UPDATE shiftboss.unique_keys SET task_id = enqueue_unique.id WHERE dedup_key = v_key;
        END IF;
        RETURN NEXT;
        RETURN;
    END IF;
    id := shiftboss.replace_waiting(p_task);
    created := id IS NULL;
    IF created THEN
        v_plain := v_plain - 'delay' || jsonb_build_object('run_at', v_now + v_debounce);
        SELECT e.id, e.created INTO id, created FROM shiftboss.enqueue(jsonb_build_array(v_plain)) e;
        IF NOT created AND p_tries > 1 THEN  -- another session was faster: give its task these params
            RETURN QUERY SELECT * FROM shiftboss.enqueue_unique(p_task, p_tries - 1);
            RETURN;
        END IF;
    END IF;
    RETURN NEXT;
END $$;

-- Replace the params and the start time of the queued task with this dedup_key. Returns its id, or NULL if there is
-- none.
CREATE OR REPLACE FUNCTION shiftboss.replace_waiting(p_task jsonb) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_params jsonb := coalesce(p_task -> 'params', '{}');
    t public.tasks;
BEGIN
    IF pg_column_size(v_params) > shiftboss.payload_limit() THEN
        RAISE EXCEPTION 'params of % bytes exceed the limit of % bytes', pg_column_size(v_params),
            shiftboss.payload_limit()
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Store the payload elsewhere and pass a reference.';
    END IF;
    SELECT * INTO t FROM public.tasks x
    WHERE x.dedup_key = p_task ->> 'dedup_key' AND x.status IN ('Queued', 'In Progress') FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF t.status = 'In Progress' THEN  -- a newer task follows, so do not retry this one
        UPDATE public.tasks SET dedup_key = NULL, max_attempts = least(max_attempts, attempts + 1), updated_at = v_now
        WHERE id = t.id;
        RETURN NULL;
    END IF;
    UPDATE public.tasks SET params = v_params, attempts = 0, error_message = NULL, wait_reason = NULL,
        updated_at = v_now,
        run_at = least(v_now + (p_task ->> 'debounce')::interval, t.created_at + (p_task ->> 'debounce_max')::interval)
    WHERE id = t.id;
    RETURN t.id;
END $$;
