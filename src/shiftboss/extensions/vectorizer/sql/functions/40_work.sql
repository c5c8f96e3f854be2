-- Functions for workers. A claim is identified by the ctid and ticket of the queue row: any change of the row creates a new tuple,
-- so that the claim no longer matches. due_at is when a row can be claimed: now, after a backoff, or when a claim expires.

CREATE OR REPLACE FUNCTION ai._pending(v ai.vectorizer) RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_count bigint;
BEGIN
    IF v.generation IS NOT NULL THEN
        EXECUTE format('SELECT (SELECT count(*) FROM %1$s) + (SELECT count(*) FROM (SELECT DISTINCT %2$s FROM %3$s l '
            'WHERE NOT EXISTS (SELECT FROM %1$s q WHERE %4$s)) fresh)', ai._queue_of(v), ai._each_key(v, 'l.k%1$s'),
            ai._log_of(v), ai._each_key(v, 'q.k%1$s = l.k%1$s', ' AND ')) INTO v_count;
    END IF;
    RETURN coalesce(v_count, 0);
END $$;

-- The exact number of pending rows. Each row counts once, no matter how often it changed.
CREATE OR REPLACE FUNCTION ai.vectorizer_pending(vectorizer anycompatible) RETURNS bigint LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$ SELECT ai._pending(ai._named(vectorizer)) $$;

CREATE OR REPLACE FUNCTION ai._has_due(v ai.vectorizer) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_due boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE due_at <= $1) OR EXISTS (SELECT FROM %s)', ai._queue_of(v),
        ai._log_of(v)) INTO v_due USING shiftboss.now();
    RETURN v_due;
END $$;

-- The vectorizers that have work to do now. A replacement with an empty queue has to be swapped in.
CREATE OR REPLACE FUNCTION ai._vectorizers_due() RETURNS SETOF ai.vectorizer LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT v.* FROM ai.vectorizer v
    WHERE v.generation IS NOT NULL AND NOT v.paused
      AND coalesce(v.deferred_until, '-infinity') <= shiftboss.now()
      AND coalesce(v.next_run_at, '-infinity') <= shiftboss.now()
      AND ai._trouble(v) IS NULL
      AND (ai._has_due(v) OR v.index_due OR v.replaces IS NOT NULL AND ai._pending(v) = 0
           AND NOT EXISTS (SELECT FROM ai._vectorizer_error e WHERE e.vectorizer_id = v.id AND e.final))
    ORDER BY v.id
$$;

-- Start a run: set the time of the next scheduled run, and apply changes of the source's columns, partitions and security.
-- Returns NULL if the vectorizer may not run now.
CREATE OR REPLACE FUNCTION ai._vectorizer_begin(p_id int) RETURNS ai.vectorizer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
BEGIN
    UPDATE ai.vectorizer x SET next_run_at = shiftboss.now() + x.schedule
    WHERE x.id = p_id AND x.generation IS NOT NULL AND NOT x.paused
      AND coalesce(x.deferred_until, '-infinity') <= shiftboss.now() AND ai._trouble(x) IS NULL
    RETURNING x.* INTO v;
    IF FOUND THEN
        v := ai._follow_renames(v);
        PERFORM ai._follow_target(v);
        PERFORM ai._follow_partitions(v);
        PERFORM ai._follow_security(v);
    END IF;
    RETURN v;
END $$;

-- Move entries from the log to the queue, which has each row once. A claimed row gets a new ticket, so that the worker, which is
-- embedding the old content, loses its claim. Only one session does this at a time; others skip it.
CREATE OR REPLACE FUNCTION ai._fold(v ai.vectorizer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_try_advisory_xact_lock(x'58AF'::int, v.generation) THEN
        EXECUTE format('WITH taken AS (DELETE FROM %1$s WHERE ctid = ANY (ARRAY('
            'SELECT ctid FROM %1$s LIMIT 10000 FOR UPDATE SKIP LOCKED)) RETURNING %2$s) '
            'INSERT INTO %3$s AS q (%2$s, due_at) SELECT DISTINCT %2$s, $1 FROM taken '
            'ON CONFLICT (%2$s) DO UPDATE SET ticket = excluded.ticket, due_at = excluded.due_at, attempts = 0, held = false '
            'WHERE q.held OR q.attempts > 0', ai._log_of(v), ai._each_key(v, 'k%1$s'), ai._queue_of(v)) USING shiftboss.now();
    END IF;
END $$;

-- Claim up to p_limit due rows and read them. Claim and read are separate statements, so that the read sees at least the changes
-- that the tickets stand for. A row that was deleted from the source is returned with present = false.
CREATE OR REPLACE FUNCTION ai._vectorizer_claim(p_id int, p_limit int, p_lease interval)
RETURNS TABLE (tid text, ticket bigint, present boolean, fields text[]) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
    v_tids tid[];
BEGIN
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_id AND x.generation IS NOT NULL AND NOT x.paused
                                           AND x.detached IS NULL AND coalesce(x.deferred_until, '-infinity') <= shiftboss.now();
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);  -- a crash may lose the claim, which is harmless
    PERFORM ai._fold(v);
    EXECUTE format('WITH taken AS (UPDATE %1$s q SET due_at = $1 + $2, held = true WHERE q.ctid = ANY (ARRAY('
        'SELECT c.ctid FROM %1$s c WHERE c.due_at <= $1 ORDER BY c.due_at LIMIT $3 FOR UPDATE SKIP LOCKED)) '
        'RETURNING q.ctid) SELECT array_agg(ctid) FROM taken', ai._queue_of(v))
    INTO v_tids USING shiftboss.now(), p_lease, p_limit;
    IF v_tids IS NULL THEN
        RETURN;
    END IF;
    v := ai._current(v);
    RETURN QUERY EXECUTE format('SELECT q.ctid::text, q.ticket, s.%I IS NOT NULL, ARRAY[%s] FROM %s q LEFT JOIN %s s ON %s '
        'WHERE q.ctid = ANY ($1)', v.key_columns[1],
        (SELECT string_agg(format('s.%I::text', c), ', ' ORDER BY n) FROM unnest(v.watched) WITH ORDINALITY w (c, n)),
        ai._queue_of(v), v.source_table, ai._each_key(v, 'q.k%1$s = s.%2$I', ' AND ')) USING v_tids;
END $$;

-- Extend the claim of rows, and return their new tids by ticket. Rows whose claim was lost or that are being changed are omitted.
CREATE OR REPLACE FUNCTION ai._vectorizer_extend(p_id int, p_tids tid[], p_tickets bigint[], p_lease interval)
RETURNS TABLE (ticket bigint, tid text) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
BEGIN
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_id AND x.generation IS NOT NULL;
    IF FOUND THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY EXECUTE format('UPDATE %1$s q SET due_at = $3 WHERE q.ctid = ANY (ARRAY('
            'SELECT c.ctid FROM %1$s c WHERE c.ctid = ANY ($1) AND c.ticket = ANY ($2) FOR UPDATE SKIP LOCKED)) '
            'RETURNING q.ticket, q.ctid::text', ai._queue_of(v)) USING p_tids, p_tickets, shiftboss.now() + p_lease;
    END IF;
END $$;

-- Release claimed rows without spending an attempt.
CREATE OR REPLACE FUNCTION ai._vectorizer_release(p_id int, p_tids tid[], p_tickets bigint[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
BEGIN
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_id AND x.generation IS NOT NULL;
    IF FOUND THEN
        EXECUTE format('UPDATE %1$s q SET due_at = $3, held = false WHERE q.ctid = ANY (ARRAY('
            'SELECT c.ctid FROM %1$s c WHERE c.ctid = ANY ($1) AND c.ticket = ANY ($2) FOR UPDATE SKIP LOCKED))',
            ai._queue_of(v)) USING p_tids, p_tickets, shiftboss.now();
    END IF;
END $$;

-- Record rows that failed at a step: they are retried with exponential backoff or, after the last attempt, listed as failed. The
-- vectors of failed rows are deleted, since they belong to an old text. Returns how many failed permanently.
CREATE OR REPLACE FUNCTION ai._vectorizer_fail(p_id int, p_tids tid[], p_tickets bigint[], p_step text, p_reasons text[])
RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
    v_most int := shiftboss.setting('vectorizer_attempts', '6');
    v_base interval := shiftboss.setting('vectorizer_backoff', '5 seconds');
    v_ended int;
BEGIN
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_id AND x.generation IS NOT NULL;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    EXECUTE format($q$
        WITH bad AS (SELECT * FROM unnest($2, $3) b (ticket, reason)),
        held AS MATERIALIZED (
            SELECT q.*, q.attempts + 1 AS tried, %2$s AS key FROM %1$s q
            WHERE q.ctid = ANY ($1) AND q.ticket = ANY ($2) FOR UPDATE SKIP LOCKED),
        ended AS (DELETE FROM %1$s q USING held h
                  WHERE q.ctid = ANY ($1) AND q.ticket = h.ticket AND h.tried >= $6 RETURNING 1),
        stale AS (DELETE FROM %3$s t USING held h WHERE %4$s AND h.tried >= $6),
        again AS (UPDATE %1$s q SET attempts = h.tried, held = false,
                      due_at = $5 + $7 * 2 ^ (h.tried - 1) * (0.8 + 0.4 * random()) FROM held h
                  WHERE q.ctid = ANY ($1) AND q.ticket = h.ticket AND h.tried < $6),
        noted AS (INSERT INTO ai._vectorizer_error AS e (vectorizer_id, key, step, reason, attempts, final, failed_at)
                  SELECT $8, h.key, $4, bad.reason, h.tried, h.tried >= $6, $5 FROM held h JOIN bad USING (ticket)
                  ON CONFLICT (vectorizer_id, key) DO UPDATE SET step = excluded.step, reason = excluded.reason,
                      attempts = excluded.attempts, final = excluded.final, failed_at = excluded.failed_at)
        SELECT count(*) FROM ended $q$, ai._queue_of(v), ai._key_json(v), v.target_table,
        ai._each_key(v, 't.%2$I = h.k%1$s', ' AND '))
    INTO v_ended USING p_tids, p_tickets, p_reasons, p_step, shiftboss.now(), v_most, v_base, p_id;
    RETURN v_ended;
END $$;

-- Defer the whole vectorizer because of its provider. No row spends an attempt.
CREATE OR REPLACE FUNCTION ai._vectorizer_defer(p_id int, p_delay interval, p_reason text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE ai.vectorizer SET deferred_until = shiftboss.now() + p_delay, defer_reason = p_reason WHERE id = p_id
$$;

-- Count the rows and chunks of a batch for the rate, and delete counts older than an hour.
CREATE OR REPLACE FUNCTION ai._vectorizer_count(p_id int, p_rows bigint, p_chunks bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
BEGIN
    INSERT INTO ai._vectorizer_minute AS m (vectorizer_id, minute, first_at, row_count, chunk_count)
    SELECT v.id, date_trunc('minute', v_now), v_now, p_rows, p_chunks FROM ai.vectorizer v WHERE v.id = p_id
    ON CONFLICT (vectorizer_id, minute) DO UPDATE SET row_count = m.row_count + excluded.row_count,
        chunk_count = m.chunk_count + excluded.chunk_count;
    DELETE FROM ai._vectorizer_minute m WHERE m.vectorizer_id = p_id AND m.minute < v_now - interval '1 hour';
END $$;

-- Enqueue a task for each vectorizer that has work, and one for each open query. Returns the number of new tasks.
CREATE OR REPLACE FUNCTION ai._vectorizers_enqueue() RETURNS bigint LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FILTER (WHERE e.created) FROM shiftboss.enqueue((
        SELECT coalesce(jsonb_agg(t.task), '[]') FROM (
            SELECT jsonb_build_object('task_type', 'vectorizer.run', 'queue', 'vectorizer',
                'params', jsonb_build_object('vectorizer_id', v.id), 'dedup_key', 'vectorizer:' || v.id) AS task
            FROM ai._vectorizers_due() v
            UNION ALL
            (SELECT jsonb_build_object('task_type', 'vectorizer.answer', 'queue', 'vectorizer', 'priority', 10,
                'params', jsonb_build_object('item', q.id), 'dedup_key', 'vectorizer:answer:' || q.id)
             FROM ai._vectorizer_query q WHERE q.embedding IS NULL AND q.error IS NULL
               AND coalesce(q.claimed_until, '-infinity') <= shiftboss.now() ORDER BY q.id LIMIT 1000)) t)) e
$$;
