-- Events. An event wakes every task that waits for its key, and is kept for tasks that start to wait later. A task
-- receives an event at most once.

-- Set how long events are kept by default.
CREATE OR REPLACE FUNCTION shiftboss.set_event_retention(p_keep interval) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shiftboss.settings (key, value) VALUES ('event_retention', p_keep::text)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
$$;

-- Send an event in the caller's transaction. p_task limits it to one task. With p_id, a repeated call has no effect.
-- Returns how many waits it ended. Waits that this transaction cannot see end within a second of its commit.
CREATE OR REPLACE FUNCTION shiftboss.send_event(p_key text, p_payload jsonb DEFAULT NULL, p_task uuid DEFAULT NULL,
    p_id uuid DEFAULT NULL, p_keep interval DEFAULT NULL) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_id uuid;
BEGIN
    IF coalesce(p_key, '') = '' OR octet_length(p_key) > 1000 THEN
        RAISE EXCEPTION 'the key of an event must have 1 to 1000 bytes' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'For example: SELECT shiftboss.send_event(''order 17 paid'', ''{"by": "card"}'')';
    ELSIF pg_column_size(p_payload) > shiftboss.payload_limit() THEN
        RAISE EXCEPTION 'a payload of % bytes exceeds the limit of % bytes', pg_column_size(p_payload),
            shiftboss.payload_limit()
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Store the payload elsewhere and send a reference.';
    END IF;
    INSERT INTO shiftboss.sent_events (id, key, payload, task_id, sent_at, expires_at)
    VALUES (coalesce(p_id, gen_random_uuid()), p_key, p_payload, p_task, v_now,
        v_now + coalesce(p_keep, shiftboss.setting('event_retention', '1 day')::interval))
    ON CONFLICT (id) DO NOTHING RETURNING id INTO v_id;
    IF v_id IS NULL THEN
        RETURN 0;
    END IF;
    RETURN shiftboss.deliver_events(ARRAY[v_id]);
END $$;

-- End the waits for these events. Returns their number.
CREATE OR REPLACE FUNCTION shiftboss.deliver_events(p_events uuid[], p_skip_locked boolean DEFAULT false) RETURNS int
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_ids uuid[];
    v_count int;
BEGIN
    -- Neither a join nor NOT EXISTS: with the statistics of an emptied table, they would scan all steps.
    v_ids := ARRAY(SELECT DISTINCT w.task_id FROM shiftboss.sent_events e
        CROSS JOIN LATERAL (SELECT s.task_id FROM shiftboss.steps s
            WHERE s.event_key = e.key AND s.state = 'waiting' AND s.event_key IS NOT NULL
              AND (e.task_id IS NULL OR e.task_id = s.task_id) OFFSET 0) w
        WHERE e.id = ANY (p_events)
          AND (SELECT true FROM shiftboss.steps d WHERE d.task_id = w.task_id AND d.event_id = e.id LIMIT 1) IS NULL);
    IF v_ids = '{}' THEN
        RETURN 0;
    ELSIF p_skip_locked THEN
        v_ids := ARRAY(SELECT t.id FROM public.tasks t WHERE t.id = ANY (v_ids) FOR NO KEY UPDATE SKIP LOCKED);
    ELSE
        PERFORM shiftboss.lock_tasks(v_ids);
    END IF;
    v_count := shiftboss.match_events(v_ids);
    PERFORM shiftboss.go_on(v_ids);
    RETURN v_count;
END $$;

-- Give each open wait of these tasks the oldest event with its key that the task has not received. The caller has
-- locked the tasks. Waits are processed one by one, so that each sees what the previous one has taken. Waits are found
-- by task: the state is compared in another collation, so that the planner cannot use the index on event waits of all
-- tasks.
CREATE OR REPLACE FUNCTION shiftboss.match_events(p_ids uuid[]) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_count int := 0;
    w record;
    v_event uuid;
BEGIN
    FOR w IN SELECT s.task_id, s.name, s.ordinal, s.event_key FROM shiftboss.steps s
             WHERE s.task_id = ANY (p_ids) AND s.kind = 'event' AND s.state COLLATE "C" = 'waiting'
             ORDER BY s.task_id, s.started_at, s.name, s.ordinal LOOP
        SELECT e.id INTO v_event FROM shiftboss.sent_events e
        WHERE e.key = w.event_key AND e.expires_at > v_now AND (e.task_id IS NULL OR e.task_id = w.task_id)
          AND NOT EXISTS (SELECT FROM shiftboss.steps d WHERE d.task_id = w.task_id AND d.event_id = e.id)
        ORDER BY e.sent_at, e.id LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        UPDATE shiftboss.steps s SET state = 'done', event_id = v_event, ended_at = v_now,
            result = (SELECT e.payload FROM shiftboss.sent_events e WHERE e.id = v_event)
        WHERE s.task_id = w.task_id AND s.kind = 'event' AND s.name = w.name AND s.ordinal = w.ordinal;
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END $$;

-- Deliver events whose sender and waiter ran concurrently and could not see each other. Such a transaction has ended
-- within a minute, so each event is checked for that long.
CREATE OR REPLACE FUNCTION shiftboss.sweep_events(p_limit int) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_events uuid[] := ARRAY(SELECT e.id FROM shiftboss.sent_events e WHERE e.swept_at IS NULL ORDER BY e.sent_at
                             LIMIT p_limit * 10);
    v_count int;
BEGIN
    IF v_events = '{}' THEN
        RETURN 0;
    END IF;
    v_count := shiftboss.deliver_events(v_events, true);
    UPDATE shiftboss.sent_events e SET seen_at = coalesce(e.seen_at, v_now),
        swept_at = CASE WHEN e.seen_at < v_now - interval '1 minute' THEN v_now END
    WHERE e.id = ANY (v_events) AND (e.seen_at IS NULL OR e.seen_at < v_now - interval '1 minute');
    RETURN v_count;
END $$;

-- Delete expired events, and the steps, parts and logs of tasks that were deleted by hand.
CREATE OR REPLACE FUNCTION shiftboss.tidy_steps(p_limit int DEFAULT 10000) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    DELETE FROM shiftboss.sent_events WHERE id IN (SELECT id FROM shiftboss.sent_events
        WHERE expires_at <= shiftboss.now()
            AND (swept_at IS NOT NULL OR expires_at <= shiftboss.now() - interval '1 hour')
        ORDER BY expires_at LIMIT p_limit);
    DELETE FROM shiftboss.steps s WHERE s.ctid = ANY (ARRAY(
        SELECT x.ctid FROM shiftboss.steps x WHERE NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = x.task_id)
            LIMIT p_limit));
    DELETE FROM shiftboss.parts p WHERE p.ctid = ANY (ARRAY(
        SELECT x.ctid FROM shiftboss.parts x WHERE NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = x.task_id)
            LIMIT p_limit));
    DELETE FROM shiftboss.task_logs l WHERE l.ctid = ANY (ARRAY(
        SELECT x.ctid FROM shiftboss.task_logs x WHERE NOT EXISTS (SELECT FROM public.tasks t WHERE t.id = x.task_id)
            LIMIT p_limit));
END $$;
