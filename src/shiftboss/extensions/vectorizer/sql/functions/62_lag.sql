-- The lag of each vectorizer, at a bounded cost: pending rows (at most p_most are counted) and the seconds since the oldest of
-- them became due.
CREATE OR REPLACE FUNCTION ai.vectorizer_lag(p_most int DEFAULT 10000)
RETURNS TABLE (name text, pending bigint, lag_seconds double precision, paused boolean) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v ai.vectorizer;
BEGIN
    FOR v IN SELECT x.* FROM ai.vectorizer x WHERE x.replaces IS NULL AND x.generation IS NOT NULL AND x.detached IS NULL
             ORDER BY x.id LIMIT 200 LOOP
        EXECUTE format('SELECT $1, count(*), coalesce(greatest(extract(epoch FROM $2 - (SELECT min(due_at) FROM %1$s)), 0), 0), $4 '
            'FROM ((SELECT FROM %1$s LIMIT $3) UNION ALL (SELECT FROM %2$s LIMIT $3)) w', ai._queue_of(v), ai._log_of(v))
        INTO name, pending, lag_seconds, paused USING v.name, shiftboss.now(), p_most, v.paused;
        RETURN NEXT;
    END LOOP;
END $$;
