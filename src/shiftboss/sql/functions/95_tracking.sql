-- Worker tracking, callable from psql alone. Stamps are clock_timestamp(): true wall time, whatever the transaction's.

CREATE OR REPLACE FUNCTION ai._worker_start(version text, expected_heartbeat_interval interval) RETURNS uuid
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_id uuid;
BEGIN
    INSERT INTO ai.vectorizer_worker_process (version, started, expected_heartbeat_interval, last_heartbeat)
    VALUES (version, v_now, expected_heartbeat_interval, v_now) RETURNING id INTO v_id;
    RETURN v_id;
END $$;

CREATE OR REPLACE FUNCTION ai._worker_heartbeat(
    worker_id uuid, num_successes_since_last_heartbeat bigint, num_errors_since_last_heartbeat bigint, error_message text
) RETURNS void LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    UPDATE ai.vectorizer_worker_process p SET
        last_heartbeat = v_now,
        heartbeat_count = p.heartbeat_count + 1,
        success_count = p.success_count + coalesce(num_successes_since_last_heartbeat, 0),
        error_count = p.error_count + coalesce(num_errors_since_last_heartbeat, 0),
        last_error_at = CASE WHEN error_message IS NULL THEN p.last_error_at ELSE v_now END,
        last_error_message = coalesce(error_message, p.last_error_message)
    WHERE p.id = worker_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'worker process % is not registered', worker_id USING ERRCODE = 'no_data_found',
            HINT = 'Register it with ai._worker_start(version, interval).';
    END IF;
END $$;

-- An error counts one error, whatever num_successes says.
CREATE OR REPLACE FUNCTION ai._worker_progress(
    worker_id uuid, worker_vectorizer_id int4, num_successes bigint, error_message text
) RETURNS void LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    IF error_message IS NULL THEN
        INSERT INTO ai.vectorizer_worker_progress AS p
            (vectorizer_id, success_count, last_success_at, last_success_process_id, updated_at)
        VALUES (worker_vectorizer_id, coalesce(num_successes, 0), v_now, worker_id, v_now)
        ON CONFLICT (vectorizer_id) DO UPDATE SET
            success_count = p.success_count + excluded.success_count,
            last_success_at = excluded.last_success_at,
            last_success_process_id = excluded.last_success_process_id,
            updated_at = excluded.updated_at;
    ELSE
        INSERT INTO ai.vectorizer_worker_progress AS p
            (vectorizer_id, error_count, last_error_at, last_error_message, last_error_process_id, updated_at)
        VALUES (worker_vectorizer_id, 1, v_now, error_message, worker_id, v_now)
        ON CONFLICT (vectorizer_id) DO UPDATE SET
            error_count = p.error_count + 1,
            last_error_at = excluded.last_error_at,
            last_error_message = excluded.last_error_message,
            last_error_process_id = excluded.last_error_process_id,
            updated_at = excluded.updated_at;
    END IF;
END $$;
