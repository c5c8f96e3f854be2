-- Notify workers only if one sleeps: NOTIFY holds a server-wide lock until the commit is durable, which serialises
-- commits. A worker that finds no task
--   1. arms: takes a number, in a short transaction that has an id;
--   2. reads pg_current_snapshot(): transactions still running may have checked for sleepers before it armed;
--   3. claims again, and once more whenever one of those transactions ends, until none is left;
--   4. sleeps. A notification wakes all sleepers and carries the last number given out. Each worker with that number
--      or a lower one receives it, so any of them can record that it was heard. After that, enqueues do not notify
--      again.
-- With 'notify' = 'off' in shiftboss.settings, workers do not arm and are not notified; they poll. SECURITY DEFINER: a
-- role that may enqueue needs no privileges on the counters.

-- IS NOT FALSE: if a counter has no value, assume a sleeper rather than leave one waiting.
CREATE OR REPLACE FUNCTION shiftboss.somebody_sleeps() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (pg_sequence_last_value('shiftboss.armed') > pg_sequence_last_value('shiftboss.heard')) IS NOT FALSE
        AND shiftboss.setting('notify', 'on') <> 'off';
END $$;

-- Whether a commit that notifies has waited for a synchronous standby for 50 ms. It holds the server-wide lock until the
-- standby answers.
CREATE OR REPLACE FUNCTION shiftboss.notifying_is_stuck() RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN current_setting('synchronous_standby_names') <> '' AND EXISTS (
        SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'object' AND l.database = 0 AND l.classid = 'pg_database'::regclass AND l.objid = 0
            AND l.mode = 'AccessExclusiveLock' AND l.granted
            AND a.wait_event = 'SyncRep' AND a.state_change < clock_timestamp() - interval '50 ms');
END $$;

-- Notify all sleepers, if there are any. Not while that would wait for a standby that does not answer: the caller may
-- have asked not to wait for it. The workers poll then.
CREATE OR REPLACE FUNCTION shiftboss.ring() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF shiftboss.somebody_sleeps() AND NOT shiftboss.notifying_is_stuck() THEN
        PERFORM pg_notify('shiftboss_tasks', coalesce(pg_sequence_last_value('shiftboss.armed')::text, '*'));
    END IF;
END $$;

-- Return a number for a worker that is about to sleep, or NULL if notifications are off. The transaction gets an id,
-- so that the next snapshot lists all older transactions that still run.
CREATE OR REPLACE FUNCTION shiftboss.arm() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF shiftboss.setting('notify', 'on') = 'off' THEN
        RETURN NULL;
    END IF;
    PERFORM pg_current_xact_id();
    RETURN nextval('shiftboss.armed');
END $$;

-- Record that a notification with this number has arrived. Ignores numbers from before a crash, which were never given
-- out.
CREATE OR REPLACE FUNCTION shiftboss.hear(p_number bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_number <= pg_sequence_last_value('shiftboss.armed')
        AND p_number > coalesce(pg_sequence_last_value('shiftboss.heard'), 0) THEN
        PERFORM setval('shiftboss.heard', p_number);
    END IF;
END $$;

-- Stop sleeping: a worker ends. If it has the last number and nobody recorded that it was heard, all enqueues would
-- notify from now on. Notifies the others, which sleep again after another look, and not while that would wait for a
-- standby that does not answer.
CREATE OR REPLACE FUNCTION shiftboss.disarm(p_number bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_sequence_last_value('shiftboss.armed') = p_number AND NOT shiftboss.notifying_is_stuck() THEN
        PERFORM shiftboss.ring();
        PERFORM shiftboss.hear(p_number);
    END IF;
END $$;
