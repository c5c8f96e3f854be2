-- Questions of tasks to people.

-- Answer the question of a task. The caller has checked the answer against the schema. Raises an error if the task
-- does not wait for it, for example because another person has already answered.
CREATE OR REPLACE FUNCTION shiftboss.answer(p_task uuid, p_name text, p_ordinal int, p_answer jsonb, p_by text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off AS $$
BEGIN
    IF pg_column_size(p_answer) > shiftboss.payload_limit() THEN
        RAISE EXCEPTION 'an answer of % bytes exceeds the limit of % bytes', pg_column_size(p_answer),
            shiftboss.payload_limit()
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Store the answer elsewhere and send a reference.';
    END IF;
    PERFORM shiftboss.lock_tasks(ARRAY[p_task]);
    UPDATE shiftboss.steps s SET state = 'done', result = p_answer, answered_by = p_by, ended_at = shiftboss.now()
    WHERE s.task_id = p_task AND s.kind = 'event' AND s.name = p_name AND s.ordinal = p_ordinal
        AND s.question IS NOT NULL
      AND s.state COLLATE "C" = 'waiting'
      AND EXISTS (SELECT FROM public.tasks t WHERE t.id = p_task AND t.status COLLATE "C" = 'Queued');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'task % no longer waits for an answer to "%"', p_task, p_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = format('`shiftboss tasks steps %s` shows the answer.', p_task);
    END IF;
    PERFORM shiftboss.go_on(ARRAY[p_task]);
END $$;
