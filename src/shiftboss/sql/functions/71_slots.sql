-- Supervisors and their slots, and orders to them.

-- Register a supervisor with the slots that it should keep.
CREATE OR REPLACE FUNCTION shiftboss.begin_supervisor(p_host text, p_pid int, p_slots jsonb) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss.supervisors (host, pid, slots) VALUES (p_host, p_pid, p_slots)
    ON CONFLICT (host) DO UPDATE SET pid = excluded.pid, slots = excluded.slots, started_at = excluded.started_at,
        last_seen = excluded.last_seen;
    PERFORM shiftboss.note('supervisor.started', NULL, NULL, NULL,
        jsonb_build_object('host', p_host, 'pid', p_pid, 'slots', p_slots));
END $$;

CREATE OR REPLACE FUNCTION shiftboss.end_supervisor(p_host text, p_pid int) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM shiftboss.supervisors WHERE host = p_host AND pid = p_pid;
    IF FOUND THEN
        PERFORM shiftboss.note('supervisor.ended', NULL, NULL, NULL, jsonb_build_object('host', p_host, 'pid', p_pid));
    END IF;
END $$;

-- Reserve a slot for a new process: under its former name if that is free (p_former is its former row), otherwise
-- under the lowest free number. A component belongs to one host, so two hosts never share one.
CREATE OR REPLACE FUNCTION shiftboss.open_slot(p_host text, p_queue text, p_former jsonb DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f public.health := jsonb_populate_record(NULL::public.health, coalesce(p_former, '{}'));
    v_component text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('slots:' || p_queue, 0));
    SELECT c INTO v_component FROM (
        SELECT f.component AS c, -1 AS n WHERE f.component IS NOT NULL
        UNION ALL
        SELECT format('worker:%s:%s', p_queue, n), n
        FROM generate_series(0, (SELECT count(*) FROM public.health WHERE queue = p_queue)) n) x
    WHERE NOT EXISTS (SELECT FROM public.health h WHERE h.component = c) ORDER BY x.n LIMIT 1;
    INSERT INTO public.health (component, queue, host, member_id, details_json, restart_count, last_restart, restarts,
        created_at)
    VALUES (v_component, p_queue, p_host, p_host || '/' || v_component,
        coalesce(f.details_json, '{}') || jsonb_build_object('queue_type', p_queue), coalesce(f.restart_count, 0),
        f.last_restart, coalesce(f.restarts, '{}'), coalesce(f.created_at, shiftboss.epoch()));
    RETURN v_component;
END $$;

-- Return the slots of a host, and record a heartbeat of its supervisor.
CREATE OR REPLACE FUNCTION shiftboss.survey(p_host text)
RETURNS TABLE (component text, queue text, status text, pid int, process text, last_seen double precision,
    current_job uuid,
    restart_count int, restart_ages double precision[], restart_ordered boolean, details jsonb, former jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    UPDATE shiftboss.supervisors SET last_seen = shiftboss.epoch() WHERE host = p_host;
    RETURN QUERY SELECT h.component, h.queue, h.status, h.pid, h.process, h.last_seen, h.current_job, h.restart_count,
        ARRAY(SELECT greatest(shiftboss.epoch() - r, 0) FROM unnest(h.restarts) r), h.restart_ordered,
        coalesce(h.details_json, '{}'), to_jsonb(h)
    FROM public.health h WHERE h.host = p_host ORDER BY h.created_at, h.component;
END $$;

-- Clear the order for a manual restart. Returns whether there was one.
CREATE OR REPLACE FUNCTION shiftboss.take_restart_order(p_component text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE public.health SET restart_ordered = false WHERE component = p_component AND restart_ordered;
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.is_supervised(p_host text) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM shiftboss.supervisors s WHERE s.host = p_host AND s.last_seen
        > shiftboss.epoch() - extract(epoch FROM shiftboss.setting('supervisor_silent_after', '30 seconds')::interval))
$$;

-- Slots by name, by queue, or all. An unknown name raises an error.
CREATE OR REPLACE FUNCTION shiftboss.chosen_slots(p_components text[], p_queue text) RETURNS SETOF public.health
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_unknown text;
BEGIN
    SELECT c INTO v_unknown FROM unnest(p_components) c
        WHERE NOT EXISTS (SELECT FROM public.health h WHERE h.component = c);
    IF v_unknown IS NOT NULL THEN
        PERFORM shiftboss.no_worker(v_unknown);
    END IF;
    IF p_queue IS NOT NULL AND NOT EXISTS (SELECT FROM public.health h WHERE h.queue = p_queue) THEN
        RAISE EXCEPTION 'queue % has no workers', p_queue USING ERRCODE = 'no_data_found',
            HINT = '`shiftboss slots` lists the workers.';
    END IF;
    RETURN QUERY SELECT * FROM public.health h WHERE (p_components IS NULL OR h.component = ANY (p_components))
        AND (p_queue IS NULL OR h.queue = p_queue) ORDER BY h.component FOR UPDATE;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.pause_workers(p_components text[] DEFAULT NULL, p_queue text DEFAULT NULL)
RETURNS SETOF text LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.health h SET details_json = coalesce(h.details_json, '{}') || '{"paused": true}'
    FROM shiftboss.chosen_slots(p_components, p_queue) c WHERE h.component = c.component RETURNING h.component
$$;

CREATE OR REPLACE FUNCTION shiftboss.resume_workers(p_components text[] DEFAULT NULL, p_queue text DEFAULT NULL)
RETURNS SETOF text LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.health h SET details_json = coalesce(h.details_json, '{}') || '{"paused": false}'
    FROM shiftboss.chosen_slots(p_components, p_queue) c WHERE h.component = c.component RETURNING h.component
$$;

-- Order manual restarts: resets the restart count, clears failed, and passes the order to the supervisor of the slot.
CREATE OR REPLACE FUNCTION shiftboss.restart_workers(p_components text[] DEFAULT NULL, p_queue text DEFAULT NULL)
RETURNS TABLE (component text, ordered boolean, note text) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.health h SET restart_ordered = h.host IS NOT NULL, restart_count = 0, last_restart = NULL,
        restarts = '{}',
        status = CASE h.status WHEN 'failed' THEN 'crashed' ELSE h.status END
    FROM shiftboss.chosen_slots(p_components, p_queue) c WHERE h.component = c.component
    RETURNING h.component, shiftboss.is_supervised(h.host), CASE
        WHEN h.host IS NULL THEN 'no supervisor manages it: restart it manually'
        WHEN shiftboss.is_supervised(h.host) THEN 'its supervisor on ' || h.host || ' restarts it'
        ELSE 'it waits for a supervisor: run `shiftboss supervise` on ' || h.host END
$$;

-- Change how many slots a running supervisor keeps for a queue, and return its host. p_host may be omitted if only one
-- supervisor is running.
CREATE OR REPLACE FUNCTION shiftboss.set_slots(p_queue text, p_count int, p_host text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_hosts text[] := ARRAY(SELECT host FROM shiftboss.supervisors
        WHERE host = p_host OR (p_host IS NULL AND shiftboss.is_supervised(host)) ORDER BY host);
BEGIN
    IF coalesce(p_queue, '') = '' OR p_count IS NULL OR p_count NOT BETWEEN 0 AND 1000 THEN
        RAISE EXCEPTION 'a queue and a number of slots from 0 to 1000 are required'
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'For example: shiftboss scale processing=4';
    END IF;
    IF cardinality(v_hosts) <> 1 THEN
        RAISE EXCEPTION '%', CASE WHEN cardinality(v_hosts) > 1 THEN 'more than one host has a supervisor: '
                || array_to_string(v_hosts, ', ') ELSE 'no supervisor is running' || coalesce(' on ' || p_host, '') END
            USING ERRCODE = 'invalid_parameter_value', HINT = CASE WHEN cardinality(v_hosts) > 1
                THEN 'Choose one with --host.' ELSE 'Start one with `shiftboss supervise`.' END;
    END IF;
    UPDATE shiftboss.supervisors SET slots = slots || jsonb_build_object(p_queue, p_count) WHERE host = v_hosts[1];
    PERFORM shiftboss.note('slots.set', NULL, NULL, NULL,
        jsonb_build_object('host', v_hosts[1], 'queue', p_queue, 'count', p_count));
    PERFORM pg_notify('shiftboss_health', v_hosts[1]);
    RETURN v_hosts[1];
END $$;

-- For the leader: slots that should send heartbeats, with the heartbeat of their supervisor, which reports on them
-- while it is alive.
CREATE OR REPLACE FUNCTION shiftboss.watch_list()
RETURNS TABLE (component text, last_seen double precision, supervisor_seen double precision)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.component, h.last_seen, s.last_seen FROM public.health h LEFT JOIN shiftboss.supervisors s
        ON s.host = h.host
    WHERE h.status IN ('starting', 'healthy', 'stopping')
$$;

-- Delete slots and supervisors without heartbeats for this time, and clear current jobs that were pruned.
CREATE OR REPLACE FUNCTION shiftboss.tidy_health(p_older interval DEFAULT '7 days') RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_before double precision := shiftboss.epoch() - extract(epoch FROM p_older);
    v_count int;
BEGIN
    DELETE FROM shiftboss.supervisors WHERE last_seen < v_before;
    DELETE FROM public.health h WHERE h.status IN ('crashed', 'failed') AND h.last_seen < v_before
        AND NOT EXISTS (SELECT FROM shiftboss.supervisors s WHERE s.host = h.host);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    UPDATE public.health h SET current_job = NULL WHERE current_job IS NOT NULL
        AND NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = h.current_job);
    RETURN v_count;
END $$;
