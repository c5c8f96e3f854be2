-- Wake workers only when one sleeps: NOTIFY takes a lock of the whole server until the commit is durable, so that commits
-- queue up behind each other. A worker that finds nothing to do
--   1. arms: takes a number, in a transaction that has an id and ends at once;
--   2. looks at pg_current_snapshot(): transactions under way may have asked before it armed, and will not wake it;
--   3. claims once more, and again whenever one of those transactions has ended, until none is left;
--   4. sleeps. A notice wakes all sleepers and carries the last number given out: a worker that has that number or a lower one
--      gets this notice, so that any of them may say that it was heard. Only then does an enqueue go without a notice again.
-- Setting 'notify' = 'off' in shiftboss.settings: nobody arms, nobody is notified of tasks, and workers poll.
-- SECURITY DEFINER: a role that may enqueue needs no right on the counters.

-- Compared with IS NOT FALSE: a counter without a value must not keep a sleeper waiting.
CREATE OR REPLACE FUNCTION shiftboss.somebody_sleeps() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (pg_sequence_last_value('shiftboss.armed') > pg_sequence_last_value('shiftboss.heard')) IS NOT FALSE
        AND shiftboss.setting('notify', 'on') <> 'off';
END $$;

-- Wake all sleepers, if there are any.
CREATE OR REPLACE FUNCTION shiftboss.ring() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF shiftboss.somebody_sleeps() THEN
        PERFORM pg_notify('shiftboss_tasks', coalesce(pg_sequence_last_value('shiftboss.armed')::text, '*'));
    END IF;
END $$;

-- A number for a worker that is about to sleep; NULL when nobody will be notified. The transaction gets an id, so that the
-- next snapshot lists all older ones that still run.
CREATE OR REPLACE FUNCTION shiftboss.arm() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF shiftboss.setting('notify', 'on') = 'off' THEN
        RETURN NULL;
    END IF;
    PERFORM pg_current_xact_id();
    RETURN nextval('shiftboss.armed');
END $$;

-- A notice with this number has arrived. A number that was never given out is from before a crash: ignore it.
CREATE OR REPLACE FUNCTION shiftboss.hear(p_number bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_number <= pg_sequence_last_value('shiftboss.armed')
        AND p_number > coalesce(pg_sequence_last_value('shiftboss.heard'), 0) THEN
        PERFORM setval('shiftboss.heard', p_number);
    END IF;
END $$;
