-- The rows of a worker process: its slot in public.health, and its incarnation in ai.vectorizer_worker_process. People
-- and supervisors read them. The lease of a worker must never depend on them.

-- Update both rows. p_slot: {"component", "pid", "status", "current_job", "details"}; p_process: {"id", "version",
-- "interval", "successes", "errors", "message"}, with the counts since it registered, so that a repeated heartbeat
-- counts nothing twice. Returns errors by part: {"slot": {"sqlstate", "message"}, ..}.
-- An incarnation whose row was deleted registers again: {"process": {"id"}}. The lock timeout is shorter than
-- deadlock_timeout: a row that another session has locked is left for the next heartbeat.
CREATE OR REPLACE FUNCTION shiftboss.keep_process(p_slot jsonb, p_process jsonb) RETURNS jsonb LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    v_answer jsonb := '{}';
    v_id uuid := (p_process ->> 'id')::uuid;
    v_successes bigint;
    v_errors bigint;
BEGIN
    IF p_slot IS NOT NULL THEN
        BEGIN
            PERFORM FROM shiftboss.update_heartbeat(p_slot ->> 'component', p_slot ->> 'status',
                (p_slot ->> 'current_job')::uuid, false, (p_slot ->> 'pid')::int, p_slot -> 'details',
                p_slot ->> 'component');
            IF NOT FOUND THEN
                PERFORM shiftboss.no_worker(p_slot ->> 'component');
            END IF;
        EXCEPTION WHEN OTHERS THEN
            v_answer := jsonb_build_object('slot', jsonb_build_object('sqlstate', SQLSTATE, 'message', SQLERRM));
        END;
    END IF;
    IF p_process IS NOT NULL THEN
        BEGIN
            SELECT p.success_count, p.error_count INTO v_successes, v_errors FROM ai.vectorizer_worker_process p
            WHERE p.id = v_id FOR UPDATE;
            IF NOT FOUND THEN
                v_id := ai._worker_start(p_process ->> 'version', (p_process ->> 'interval')::interval);
                v_answer := v_answer || jsonb_build_object('process', jsonb_build_object('id', v_id));
            END IF;
            v_successes := greatest((p_process ->> 'successes')::bigint - coalesce(v_successes, 0), 0);
            v_errors := greatest((p_process ->> 'errors')::bigint - coalesce(v_errors, 0), 0);
            PERFORM ai._worker_heartbeat(v_id, v_successes, v_errors, CASE WHEN v_errors > 0
                THEN p_process ->> 'message' END);
        EXCEPTION WHEN OTHERS THEN
            v_answer := v_answer || jsonb_build_object('process',
                jsonb_build_object('sqlstate', SQLSTATE, 'message', SQLERRM));
        END;
    END IF;
    RETURN v_answer;
END $$;

-- Process a heartbeat of a worker process: shiftboss.beat for its leases, and both rows. The rows come first, because
-- all sessions lock a slot before a worker.
CREATE OR REPLACE FUNCTION shiftboss.beat_process(p_worker text, p_leases bigint[], p_usage jsonb, p_stats jsonb,
    p_incarnation uuid, p_slot jsonb, p_process jsonb)
RETURNS TABLE (known boolean, status text, paused boolean, draining boolean, cancel bigint[], lost bigint[],
    trouble jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_trouble jsonb := shiftboss.keep_process(p_slot, p_process);
BEGIN
    RETURN QUERY SELECT b.*, v_trouble FROM shiftboss.beat(p_worker, p_leases, p_usage, p_stats, p_incarnation) b;
END $$;
