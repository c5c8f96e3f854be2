-- requires: vector
-- Writes vectors. 52_search.sql searches them.

-- Write vectors and remove their rows from the queue atomically. p_tids and p_tickets are the claimed rows; the other arrays have
-- one element per chunk, which belongs to the row with that ticket. The vectors of a row without chunks are deleted. Rows that
-- have changed or are being changed are skipped and embedded again. Returns the tickets of the written rows.
CREATE OR REPLACE FUNCTION ai._vectorizer_write(p_id int, p_tids tid[], p_tickets bigint[], p_chunk_tickets bigint[],
    p_seqs int[], p_chunks text[], p_embeddings public.vector[]) RETURNS bigint[] LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
    v_done bigint[];
BEGIN
    SELECT * INTO v FROM ai.vectorizer x WHERE x.id = p_id AND x.generation IS NOT NULL;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    EXECUTE format($q$
        WITH held AS MATERIALIZED (
            SELECT q.* FROM %1$s q WHERE q.ctid = ANY ($1) AND q.ticket = ANY ($2) FOR UPDATE SKIP LOCKED),
        cleared AS (DELETE FROM %1$s q USING held h WHERE q.ctid = ANY ($1) AND q.ticket = h.ticket),
        stale AS (DELETE FROM %2$s t USING held h LEFT JOIN (SELECT x, count(*) AS n FROM unnest($3) x GROUP BY x) c
                      ON c.x = h.ticket
                  WHERE %3$s AND t.chunk_seq >= coalesce(c.n, 0)),
        fresh AS (INSERT INTO %2$s (%4$s, chunk_seq, chunk, embedding)
                  SELECT %5$s, x.seq, x.chunk, x.embedding
                  FROM unnest($3, $4, $5, $6) x (ticket, seq, chunk, embedding) JOIN held h USING (ticket)
                  ON CONFLICT (%4$s, chunk_seq) DO UPDATE SET chunk = excluded.chunk, embedding = excluded.embedding),
        mended AS (DELETE FROM ai._vectorizer_error e USING held q WHERE e.vectorizer_id = $7 AND e.key = %6$s)
        SELECT coalesce(array_agg(ticket), '{}') FROM held $q$,
        ai._queue_of(v), v.target_table, ai._each_key(v, 't.%2$I = h.k%1$s', ' AND '), ai._each_key(v, '%2$I'),
        ai._each_key(v, 'h.k%1$s'), ai._key_json(v))
    INTO v_done USING p_tids, p_tickets, p_chunk_tickets, p_seqs, p_chunks, p_embeddings, p_id;
    RETURN v_done;
END $$;
