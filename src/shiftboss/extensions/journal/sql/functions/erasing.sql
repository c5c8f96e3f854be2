-- requires: vector
-- Deletion. Foreign keys delete the results, vectors, mentions and references of a deleted entry. The trigger deletes what was
-- derived from it together with other entries, and runs for every DELETE, including plain SQL.

-- Delete the insights, user results and context that used a deleted entry, and entities that no entry mentions any more. The AI
-- engine's cached answers and recorded prompts do not say whose text they contain, so those of all journal analyses are deleted.
-- Steps, results, errors and logs of the tasks that analysed the entry are deleted too: an error may quote the text. Entries that
-- lose context become unprocessed, and the next run computes the insights of their user again.
CREATE OR REPLACE FUNCTION journal.entries_deleted() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_types text[] := ARRAY['raw_data_parsing', 'content_extraction', 'sentiment_analysis', 'theme_identification',
                            'emotion_detection', 'activity_recognition', 'insight_generation', 'embedding',
                            'embedding_generation'];
    v_tasks uuid[];
BEGIN
    IF NOT EXISTS (SELECT FROM gone) THEN
        RETURN NULL;
    END IF;
    DELETE FROM journal.insights i USING (SELECT DISTINCT g.user_id FROM gone g) w WHERE i.user_id = w.user_id;
    DELETE FROM journal.user_results r USING (SELECT DISTINCT g.user_id FROM gone g) w WHERE r.user_id = w.user_id;
    DELETE FROM journal.entities n USING (SELECT DISTINCT g.user_id FROM gone g) w
    WHERE n.user_id = w.user_id AND NOT EXISTS (SELECT FROM journal.mentions m WHERE m.entity_id = n.id);
    WITH since AS (
        SELECT g.user_id, min(g.written_at) AS first, jsonb_agg(DISTINCT g.external_id) AS names FROM gone g GROUP BY 1
    ), newest AS (
        SELECT DISTINCT ON (e.user_id) e.id FROM journal.entries e JOIN since s USING (user_id)
        ORDER BY e.user_id, e.written_at DESC
    ), forgotten AS (
        DELETE FROM journal.results r USING journal.entries e, since s
        WHERE e.id = r.entry_id AND e.user_id = s.user_id
          AND (r.task_type IN ('user_context', 'temporal_context', 'relationship_context') AND e.written_at >= s.first
               OR r.task_type = 'cross_reference_embedding'
                  AND EXISTS (SELECT FROM jsonb_array_elements(r.processed_data -> 'references') x
                              WHERE s.names @> (x.value -> 'entry')))
        RETURNING r.entry_id
    )
    UPDATE journal.entries e SET processed_revision = NULL
    WHERE e.id IN (SELECT f.entry_id FROM forgotten f UNION SELECT n.id FROM newest n);
    DELETE FROM shiftboss.ai_cache c WHERE c.task_type = ANY (v_types);
    DELETE FROM shiftboss.ai_call_texts t USING shiftboss.ai_calls c
    WHERE c.call_id = t.call_id AND (c.template = ANY (v_types) OR c.task_type = ANY (v_types));
    UPDATE shiftboss.ai_providers p SET last_error = NULL WHERE p.last_error IN (SELECT c.error FROM shiftboss.ai_calls c
        WHERE c.error IS NOT NULL AND (c.template = ANY (v_types) OR c.task_type = ANY (v_types)));
    UPDATE shiftboss.ai_calls c SET error = NULL
    WHERE c.error IS NOT NULL AND (c.template = ANY (v_types) OR c.task_type = ANY (v_types));
    v_tasks := ARRAY(
        SELECT t.id FROM public.tasks t
        WHERE (t.task_type LIKE 'journal.%' OR t.task_type = ANY (v_types))
          AND (t.params ->> 'entry_id' IN (SELECT g.id::text FROM gone g) OR t.params ->> 'item' IN (SELECT g.id::text FROM gone g)
               OR t.params ->> 'user_id' IN (SELECT g.user_id FROM gone g)));
    DELETE FROM shiftboss.steps s WHERE s.task_id = ANY (v_tasks);
    DELETE FROM shiftboss.task_logs l WHERE l.task_id = ANY (v_tasks);
    UPDATE shiftboss.error_groups x SET message = NULL WHERE x.task_id = ANY (v_tasks);
    UPDATE shiftboss.error_tallies x SET error = NULL WHERE x.task_id = ANY (v_tasks);
    UPDATE shiftboss.past_attempts a SET error = NULL WHERE a.task_id = ANY (v_tasks) AND a.error IS NOT NULL;
    UPDATE public.tasks t SET result_data = NULL, error_message = NULL
    WHERE t.id = ANY (v_tasks) AND (t.result_data IS NOT NULL OR t.error_message IS NOT NULL);
    RETURN NULL;
END;
$$;
CREATE OR REPLACE TRIGGER entries_deleted AFTER DELETE ON journal.entries REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION journal.entries_deleted();

-- Delete entries and everything derived from them. Returns the number of deleted entries.
CREATE OR REPLACE FUNCTION journal.delete_entries(p_entries uuid[]) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_deleted integer;
BEGIN
    PERFORM journal.lock_users(p_entries);
    DELETE FROM journal.entries e WHERE e.id = ANY (p_entries);
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END;
$$;

-- Delete a user with all entries and results. Returns the number of deleted entries, or NULL if the user does not exist.
CREATE OR REPLACE FUNCTION journal.erase_user(p_user text) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_entries integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('journal ' || p_user, 0));
    SELECT count(*) INTO v_entries FROM journal.entries e WHERE e.user_id = p_user;
    DELETE FROM journal.users u WHERE u.id = p_user;
    RETURN CASE WHEN FOUND THEN v_entries END;
END;
$$;
