-- The documented functions for any SQL client. They call the functions of the schema shiftboss.

CREATE OR REPLACE FUNCTION public.func_claim_available_task(worker_id_param text)
RETURNS TABLE (id uuid, status text, attempts int, worker_id text, generation_started_at timestamptz, task_data jsonb,
    created_at timestamptz, task_type text)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.id, 'In Progress', c.attempt - 1, worker_id_param, c.started_at, c.params, c.created_at, c.task_type
    FROM shiftboss.claim(worker_id_param, 1) c
$$;

-- The legacy form of func_claim_available_task. A name other than that of the tasks table raises an error.
CREATE OR REPLACE FUNCTION public.func_claim_task(p_table_name text, p_worker_id text)
RETURNS TABLE (id uuid, status text, attempts int, worker_id text, generation_started_at timestamptz, task_data jsonb,
    created_at timestamptz, task_type text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_table_name IS NULL OR p_table_name NOT IN ('tasks', 'public.tasks') THEN
        RAISE EXCEPTION 'func_claim_task claims from "tasks" only, not from "%"', p_table_name
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Call func_claim_task(''tasks'', worker_id).';
    END IF;
    RETURN QUERY SELECT * FROM public.func_claim_available_task(p_worker_id);
END $$;

-- Lock a task and return its current lease, or NULL if it is not running.
CREATE OR REPLACE FUNCTION shiftboss.running_lease(p_id uuid) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t public.tasks;
BEGIN
    SELECT * INTO t FROM public.tasks WHERE id = p_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no task %', p_id USING ERRCODE = 'no_data_found';
    END IF;
    IF t.status <> 'In Progress' THEN
        RAISE NOTICE 'task % is %, not In Progress: the report has no effect', p_id, t.status;
        RETURN NULL;
    END IF;
    IF t.lease IS NULL THEN  -- set to In Progress by hand: it gets a lease now
        UPDATE public.tasks SET lease = shiftboss.lease_of(id, shiftboss.lease_salt()) WHERE id = p_id RETURNING *
            INTO t;
    END IF;
    RETURN t.lease;
END $$;

-- Count the work of an external worker, which sends no statistics.
CREATE OR REPLACE FUNCTION shiftboss.count_external(p_id uuid, p_completed int, p_failed int) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT shiftboss.count_work(t.last_worker_id, jsonb_build_array(jsonb_build_object(
        'queue', t.queue, 'task_type', t.task_type, 'completed', p_completed, 'failed', p_failed,
        'seconds', greatest(extract(epoch FROM shiftboss.now() - coalesce(t.generation_started_at, shiftboss.now())),
            0))))
    FROM public.tasks t WHERE t.id = p_id AND t.last_worker_id IS NOT NULL
$$;

CREATE OR REPLACE FUNCTION public.func_mark_task_complete(task_id_param uuid, result_data_param jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_lease bigint := shiftboss.running_lease(task_id_param);
BEGIN
    IF v_lease IS NOT NULL THEN
        PERFORM shiftboss.complete(ARRAY[task_id_param], ARRAY[v_lease], ARRAY[result_data_param]);
        PERFORM shiftboss.count_external(task_id_param, 1, 0);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION public.func_mark_task_failed(task_id_param uuid, error_message_param text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_lease bigint := shiftboss.running_lease(task_id_param);
BEGIN
    IF v_lease IS NOT NULL THEN
        PERFORM shiftboss.count_external(task_id_param, 0, 1);
        PERFORM shiftboss.fail(ARRAY[task_id_param], ARRAY[v_lease], ARRAY[error_message_param]);
    END IF;
END $$;

-- Requeue the tasks of failed workers, and return their number. Tasks without attempts left become Failed and do not
-- count.
CREATE OR REPLACE FUNCTION public.func_reset_orphaned_tasks(failed_worker_ids text[]) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_ids uuid[] := ARRAY(SELECT id FROM public.tasks WHERE status = 'In Progress'
        AND worker_id = ANY (failed_worker_ids)
        ORDER BY id FOR NO KEY UPDATE);
BEGIN
    PERFORM shiftboss.lose_worker(coalesce(failed_worker_ids, '{}'), 'lost', 'its worker failed');
    RETURN (SELECT count(*) FROM public.tasks WHERE id = ANY (v_ids) AND status COLLATE "C" = 'Queued');
END $$;

CREATE OR REPLACE FUNCTION public.func_update_worker_heartbeat(worker_id_param text,
    vram_total_mb_param int DEFAULT NULL,
    vram_used_mb_param int DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shiftboss.admit(worker_id_param);
    PERFORM shiftboss.beat(worker_id_param);
    UPDATE public.workers SET metadata = metadata || jsonb_strip_nulls(jsonb_build_object(
        'vram_total_mb', vram_total_mb_param, 'vram_used_mb', vram_used_mb_param,
        'vram_timestamp', extract(epoch FROM shiftboss.now())::double precision))
    WHERE id = worker_id_param AND coalesce(vram_total_mb_param, vram_used_mb_param) IS NOT NULL;
END $$;
