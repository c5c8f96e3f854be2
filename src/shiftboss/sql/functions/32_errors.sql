-- Error groups: failures of one exception type at one place in the code. Each failed attempt gets its group when it is
-- stored. The leader adds them up every few seconds, so that failures do not wait for a shared counter. Readers use
-- the view shiftboss.errors, which also has those that are not added up yet, at most 20,000 of them.

-- The name of the exception, or the outcome if there was none. Other text is used with its numbers replaced.
CREATE OR REPLACE FUNCTION shiftboss.error_type(p_outcome text, p_error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_outcome <> 'failed' THEN p_outcome
        ELSE coalesce(substring(split_part(p_error, E'\n', 1) FROM '^([A-Za-z_][A-Za-z0-9_.]{0,199})(?::|$)'),
            CASE WHEN p_error LIKE '$enc:%' THEN 'encrypted' END,
            nullif(left(regexp_replace(split_part(p_error, E'\n', 1), '[0-9]+', '#', 'g'), 200), ''), 'unknown') END
$$;

-- The innermost frame of a Python traceback as `package/file.py in function`, or NULL. Frames of Shiftboss count only if
-- there are no others: unrelated calls of one of its functions fail at the same place inside it. Line numbers are
-- omitted, because they change with every release.
CREATE OR REPLACE FUNCTION shiftboss.error_place(p_error text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT substring(frame[1] FROM '([^/\\]*[/\\]?[^/\\]+)$') || ' in ' || left(frame[2], 200)
    FROM coalesce(
        regexp_match(p_error, '.*File "(?![^"]*[/\\]shiftboss[/\\])([^"]+)", line [0-9]+, in ([^\n]+)'),
        regexp_match(p_error, '.*File "([^"]+)", line [0-9]+, in ([^\n]+)')) frame
$$;

CREATE OR REPLACE FUNCTION shiftboss.error_group(p_outcome text, p_error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT left(md5(shiftboss.error_type(p_outcome, p_error) || E'\n'
        || coalesce(shiftboss.error_place(p_error), '')), 12)
$$;

CREATE OR REPLACE FUNCTION shiftboss.group_error() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.error_group := shiftboss.error_group(NEW.outcome, NEW.error);
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.tally_errors() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shiftboss.error_tallies (error_group, task_id, worker_id, outcome, error, at)
    SELECT error_group, task_id, worker_id, outcome, error, ended_at FROM made WHERE error_group IS NOT NULL;
    INSERT INTO shiftboss.counter_tallies (name, value)
    SELECT 'lost_leases', count(*) FROM made WHERE outcome IN ('lost', 'crashed') HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER group_error BEFORE INSERT ON shiftboss.past_attempts FOR EACH ROW
    WHEN (NEW.outcome IN ('failed', 'timeout', 'lost', 'crashed')) EXECUTE FUNCTION shiftboss.group_error();
CREATE OR REPLACE TRIGGER tally_errors AFTER INSERT ON shiftboss.past_attempts REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT EXECUTE FUNCTION shiftboss.tally_errors();

-- The names in p_new, then those in p_old, each once, at most 20.
CREATE OR REPLACE FUNCTION shiftboss.latest_names(p_new text[], p_old text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(name ORDER BY n), '{}') FROM (
        SELECT name, min(n) AS n FROM unnest(p_new || p_old) WITH ORDINALITY u (name, n) WHERE name IS NOT NULL
        GROUP BY name ORDER BY 2 LIMIT 20) x
$$;

-- Failures that are not added to their groups yet, as groups: those in these rows of error_tallies, or by default
-- 20,000 of them. Looks up task types and versions (`known`) and aggregates them (`grouped`). Sequential scans are off,
-- because they would compare every row with the whole array; a TID scan reads exactly the given rows.
CREATE OR REPLACE FUNCTION shiftboss.new_errors(p_rows tid[] DEFAULT NULL) RETURNS SETOF shiftboss.error_groups
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
    WITH known AS (
        SELECT e.*, t.task_type, coalesce(t.requires #>> ARRAY['version', t.task_type, '0'],
            w.capabilities #>> ARRAY['versions', t.task_type, '0'], w.version) AS version
        FROM shiftboss.error_tallies e
        LEFT JOIN public.tasks t ON t.id = e.task_id LEFT JOIN public.workers w ON w.id = e.worker_id
        WHERE e.ctid = ANY (coalesce(p_rows, ARRAY(SELECT ctid FROM shiftboss.error_tallies LIMIT 20000)))
    ), grouped AS (
        SELECT error_group, min(at) AS first_seen, max(at) AS last_seen, count(*) AS count,
            (array_agg(error ORDER BY at DESC))[1] AS error, (array_agg(outcome ORDER BY at DESC))[1] AS outcome,
            (array_agg(task_id ORDER BY at DESC))[1] AS task_id, array_agg(DISTINCT task_type) AS task_types,
            array_agg(DISTINCT version) AS versions, array_agg(DISTINCT worker_id) AS workers
        FROM known GROUP BY error_group
    )
    SELECT error_group, shiftboss.error_type(outcome, error), shiftboss.error_place(error),
        -- Encrypted text cannot be decrypted if it is truncated.
        left(split_part(error, E'\n', 1), CASE WHEN strpos(error, '$enc:') > 0 THEN 20000 ELSE 500 END),
        first_seen, last_seen, count, shiftboss.latest_names(task_types, '{}'),
        shiftboss.latest_names(versions, '{}'), shiftboss.latest_names(workers, '{}'), task_id
    FROM grouped
$$;

-- Add up to p_limit tallies to their groups and return their number. The leader calls this every few seconds.
CREATE OR REPLACE FUNCTION shiftboss.fold_errors(p_limit int DEFAULT 20000) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_rows tid[] := ARRAY(SELECT ctid FROM shiftboss.error_tallies LIMIT p_limit FOR UPDATE SKIP LOCKED);
BEGIN
    INSERT INTO shiftboss.error_groups AS x
    SELECT * FROM shiftboss.new_errors(v_rows) ORDER BY id
    ON CONFLICT (id) DO UPDATE SET message = excluded.message,
        last_seen = greatest(x.last_seen, excluded.last_seen),
        count = x.count + excluded.count, task_types = shiftboss.latest_names(excluded.task_types, x.task_types),
        versions = shiftboss.latest_names(excluded.versions, x.versions),
        workers = shiftboss.latest_names(excluded.workers, x.workers), task_id = excluded.task_id;
    DELETE FROM shiftboss.error_tallies WHERE ctid = ANY (v_rows);
    RETURN cardinality(v_rows);
END $$;

-- Delete groups that were not seen for this time, and all but the 1000 most recent.
CREATE OR REPLACE FUNCTION shiftboss.tidy_errors(p_older interval) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM shiftboss.error_groups WHERE last_seen < shiftboss.now() - p_older
        OR id IN (SELECT id FROM shiftboss.error_groups ORDER BY last_seen DESC OFFSET 1000);
$$;
