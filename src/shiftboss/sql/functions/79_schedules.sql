-- Cron schedules.

-- Enqueue the task of a schedule for these ticks and set its next tick. Does nothing if another session has already
-- done so (p_seen is no longer its next tick) or if it is paused. Returns the new tasks.
CREATE OR REPLACE FUNCTION shiftboss.fire(p_name text, p_seen timestamptz, p_ticks timestamptz[], p_next timestamptz)
RETURNS uuid[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s shiftboss.schedules;
    v_tick timestamptz;
    v_id uuid;
    v_ids uuid[] := '{}';
BEGIN
    SELECT * INTO s FROM shiftboss.schedules WHERE name = p_name AND next_tick = p_seen AND NOT paused FOR UPDATE;
    IF NOT FOUND THEN
        RETURN v_ids;
    END IF;
    FOREACH v_tick IN ARRAY p_ticks LOOP
        v_id := gen_random_uuid();
        INSERT INTO shiftboss.ticks (schedule, tick, task_id) VALUES (p_name, v_tick, v_id) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            -- If the dedup_key is in use, enqueue returns the existing task: the tick counts, but creates no task.
            SELECT e.id INTO v_id
                FROM shiftboss.enqueue(jsonb_build_array(s.task || jsonb_build_object('id', v_id, 'metadata',
                coalesce(s.task -> 'metadata', '{}') || jsonb_build_object('schedule', p_name, 'tick', v_tick)))) e;
            v_ids := v_ids || v_id;
        END IF;
    END LOOP;
    UPDATE shiftboss.schedules SET next_tick = p_next, last_tick = coalesce(p_ticks[cardinality(p_ticks)], last_tick),
        last_task_id = coalesce(v_id, last_task_id) WHERE name = p_name;
    DELETE FROM shiftboss.ticks WHERE schedule = p_name AND tick < least(p_seen, shiftboss.now()) - interval '30 days';
    RETURN v_ids;
END $$;

-- Enqueue the task of a schedule now, even if it is paused. Its ticks do not change. Returns NULL for an unknown
-- schedule.
CREATE OR REPLACE FUNCTION shiftboss.run_schedule(p_name text) RETURNS uuid LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s shiftboss.schedules;
    v_id uuid;
BEGIN
    SELECT * INTO s FROM shiftboss.schedules WHERE name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT e.id INTO v_id FROM shiftboss.enqueue(jsonb_build_array(s.task || jsonb_build_object('metadata',
        coalesce(s.task -> 'metadata', '{}') || jsonb_build_object('schedule', p_name)))) e;
    UPDATE shiftboss.schedules SET last_task_id = v_id WHERE name = p_name;
    RETURN v_id;
END $$;
