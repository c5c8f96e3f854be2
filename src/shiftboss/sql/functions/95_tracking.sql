-- Worker tracking for any SQL client. Timestamps are clock_timestamp(), not the start of the transaction.

-- Reject a negative count, because totals must never decrease.
CREATE OR REPLACE FUNCTION ai._check_count(p_name text, p_count bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_count < 0 THEN
        RAISE EXCEPTION '% must not be negative, but is %', p_name, p_count USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION ai._worker_start(version text, expected_heartbeat_interval interval) RETURNS uuid
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_id uuid;
BEGIN
    IF expected_heartbeat_interval <= interval '0' THEN
        RAISE EXCEPTION 'expected_heartbeat_interval must be positive, but is %', expected_heartbeat_interval
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO ai.vectorizer_worker_process (version, started, expected_heartbeat_interval, last_heartbeat)
    VALUES (version, v_now, expected_heartbeat_interval, v_now) RETURNING id INTO v_id;
    RETURN v_id;
END $$;

CREATE OR REPLACE FUNCTION ai._worker_heartbeat(worker_id uuid, successes bigint, errors bigint, error_message text)
RETURNS void LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    PERFORM ai._check_count('successes', successes), ai._check_count('errors', errors);
    UPDATE ai.vectorizer_worker_process p SET
        last_heartbeat = v_now,
        heartbeat_count = p.heartbeat_count + 1,
        success_count = p.success_count + coalesce(successes, 0),
        error_count = p.error_count + coalesce(errors, 0),
        last_error_at = CASE WHEN error_message IS NULL THEN p.last_error_at ELSE v_now END,
        last_error_message = coalesce(error_message, p.last_error_message)
    WHERE p.id = worker_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'worker process % is not registered', worker_id USING ERRCODE = 'no_data_found',
            HINT = 'Register it with ai._worker_start(version, interval).';
    END IF;
END $$;

-- Store the progress of a vectorizer. With an error message, counts one error and ignores `successes`. The parameter
-- vectorizer_id has the documented name, which is also a column: the parameter is qualified with the name of the
-- function.
CREATE OR REPLACE FUNCTION ai._worker_progress(worker_id uuid, vectorizer_id int4, successes bigint,
    error_message text)
RETURNS void LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    PERFORM ai._check_count('successes', successes);
    IF error_message IS NULL THEN
        INSERT INTO ai.vectorizer_worker_progress AS p
            (vectorizer_id, success_count, last_success_at, last_success_process_id, updated_at)
        VALUES (_worker_progress.vectorizer_id, coalesce(successes, 0), v_now, worker_id, v_now)
        ON CONFLICT (vectorizer_id) DO UPDATE SET
            success_count = p.success_count + excluded.success_count,
            last_success_at = excluded.last_success_at,
            last_success_process_id = excluded.last_success_process_id,
            updated_at = excluded.updated_at;
    ELSE
        INSERT INTO ai.vectorizer_worker_progress AS p
            (vectorizer_id, error_count, last_error_at, last_error_message, last_error_process_id, updated_at)
        VALUES (_worker_progress.vectorizer_id, 1, v_now, error_message, worker_id, v_now)
        ON CONFLICT (vectorizer_id) DO UPDATE SET
            error_count = p.error_count + 1,
            last_error_at = excluded.last_error_at,
            last_error_message = excluded.last_error_message,
            last_error_process_id = excluded.last_error_process_id,
            updated_at = excluded.updated_at;
    END IF;
END $$;
