-- Enqueue tasks. Any INSERT into `tasks` is an enqueue: triggers do the rest, so plain SQL, COPY and
-- shiftboss.enqueue() are equivalent. The triggers run as the owner: a role that may insert needs no privileges on the
-- tables that they use.

CREATE OR REPLACE FUNCTION shiftboss.setting(p_key text, p_default text) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS
$$ SELECT coalesce((SELECT value FROM shiftboss.settings WHERE key = p_key), p_default) $$;

-- The documented priorities by origin.
CREATE OR REPLACE FUNCTION shiftboss.priority_of(p_origin text) RETURNS smallint LANGUAGE sql IMMUTABLE RETURN
    (CASE p_origin WHEN 'real_time_analysis' THEN 15 WHEN 'user_requested' THEN 10
                          WHEN 'batch_processing' THEN 5 WHEN 'background_cleanup' THEN 1 ELSE 5 END)::smallint;

-- Reject invalid options of a task. These rules are not CHECKs or domains: PostgreSQL prepares CHECKs again for every
-- statement, which took a sixth of a single INSERT, and a domain would rewrite existing tables. Keys that do not fit
-- into an index and times that clients cannot represent would make every later claim fail.
CREATE OR REPLACE FUNCTION shiftboss.check_terms(t public.tasks) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_wrong text := CASE
        WHEN octet_length(t.dedup_key) > 1000 THEN 'dedup_key is longer than 1000 bytes'
        WHEN octet_length(t.concurrency_key) > 1000 THEN 'concurrency_key is longer than 1000 bytes'
        WHEN t.status NOT IN ('Queued', 'In Progress', 'Complete', 'Failed', 'Cancelled')
            THEN format('status %L is not Queued, In Progress, Complete, Failed or Cancelled', t.status)
        WHEN t.queue = '' THEN 'queue must not be empty'
        WHEN t.priority NOT BETWEEN 0 AND 100 THEN format('priority %s is not between 0 and 100', t.priority)
        WHEN t.max_attempts NOT BETWEEN 1 AND 1000
            THEN format('max_attempts %s is not between 1 and 1000', t.max_attempts)
        WHEN t.run_at <= '2000-01-01 00:00+00' OR t.run_at >= '2200-01-01 00:00+00'
            THEN 'run_at is not between 2000 and 2200'
        WHEN t.deadline <= '2000-01-01 00:00+00' OR t.deadline >= '2200-01-01 00:00+00'
            THEN 'deadline is not between 2000 and 2200'
        WHEN t.timeout <= interval '0' THEN 'timeout must be positive'
        WHEN t.timeout > interval '10 years' THEN 'timeout is longer than 10 years'
        WHEN t.backoff < interval '0' THEN 'backoff must not be negative'
        WHEN t.backoff_factor < 1 THEN format('backoff_factor %s is less than 1', t.backoff_factor)
        WHEN t.backoff_max <= interval '0' THEN 'backoff_max must be positive'
        WHEN t.backoff_max > interval '10 years' THEN 'backoff_max is longer than 10 years'
        WHEN t.on_dependency_failure NOT IN ('cancel', 'fail', 'run')
            THEN format('on_dependency_failure %L is not cancel, fail or run', t.on_dependency_failure)
        WHEN t.hold NOT IN ('dependency', 'limit', 'unusable', 'sleep', 'event', 'child')
            THEN format('hold %L is not dependency, limit, unusable, sleep, event or child', t.hold)
        WHEN t.progress NOT BETWEEN 0 AND 100 THEN format('progress %s is not between 0 and 100', t.progress) END;
BEGIN
    IF v_wrong LIKE '%_key is longer%' THEN
        RAISE EXCEPTION '%', v_wrong USING ERRCODE = 'check_violation', TABLE = 'tasks',
            HINT = 'Put long text into params, and use a hash of it as the key.';
    ELSIF v_wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', v_wrong USING ERRCODE = 'check_violation', TABLE = 'tasks';
    END IF;
END $$;

-- Reject names that are too long for the indexes of the statistics.
CREATE OR REPLACE FUNCTION shiftboss.check_names(p_queue text, p_task_type text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(p_queue) > 500 OR octet_length(p_task_type) > 500 THEN
        RAISE EXCEPTION '% is longer than 500 bytes', CASE WHEN octet_length(p_queue) > 500 THEN 'queue'
            ELSE 'task_type' END
            USING ERRCODE = 'check_violation', HINT = 'Put long text into params.';
    END IF;
END $$;
DROP TRIGGER IF EXISTS refuse_lane ON shiftboss.lanes;  -- from a version that registered lanes in a trigger
DROP FUNCTION IF EXISTS shiftboss.refuse_lane();

CREATE OR REPLACE FUNCTION shiftboss.check_changed_terms() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shiftboss.check_terms(NEW);
    RETURN NULL;
END $$;

-- Runs only for tasks with non-default options: see the WHEN clause of its trigger, which is short because PostgreSQL
-- parses it for every statement.
CREATE OR REPLACE FUNCTION shiftboss.prepare_task() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_wrong record;
BEGIN
    IF NEW.task_type = '' THEN
        PERFORM shiftboss.refuse_type();
    END IF;
    PERFORM shiftboss.check_names(NEW.queue, NEW.task_type);
    IF pg_column_size(NEW.params) > shiftboss.payload_limit() THEN
        RAISE EXCEPTION 'params of % bytes exceed the limit of % bytes', pg_column_size(NEW.params),
            shiftboss.payload_limit()
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Store the payload elsewhere and pass a reference, '
                || 'or raise the limit: SELECT shiftboss.set_payload_limit(bytes).';
    END IF;
    PERFORM shiftboss.check_terms(NEW);
    IF NEW.origin IS NOT NULL AND NEW.priority = 5 THEN
        NEW.priority := shiftboss.priority_of(NEW.origin);
    END IF;
    IF NEW.requires IS NOT NULL THEN
        IF jsonb_typeof(NEW.requires) <> 'object' THEN
            RAISE EXCEPTION 'requires must be a JSON object, not %', jsonb_typeof(NEW.requires)
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        SELECT r.key, k.kind, jsonb_typeof(r.value) AS given INTO v_wrong
        FROM jsonb_each(NEW.requires) r
            LEFT JOIN (VALUES ('ai_provider', 'string'), ('features', 'array'), ('gpu', 'boolean'),
            ('memory_gb', 'number'), ('cpu_cores', 'number'), ('version', 'object')) k (key, kind) USING (key)
        WHERE k.kind IS DISTINCT FROM jsonb_typeof(r.value) LIMIT 1;
        IF v_wrong.kind IS NOT NULL THEN
            RAISE EXCEPTION 'requires: "%" must be of type %, not %', v_wrong.key, v_wrong.kind, v_wrong.given
                USING ERRCODE = 'invalid_parameter_value';
        ELSIF v_wrong.key IS NOT NULL THEN
            RAISE EXCEPTION 'requires: unknown key "%"', v_wrong.key USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Known keys: ai_provider, features, gpu, memory_gb, cpu_cores.';
        END IF;
    END IF;
    IF cardinality(NEW.depends_on) > 0 THEN
        NEW := shiftboss.await_parents(NEW);
    END IF;
    RETURN NEW;
END $$;

-- Hold a task until its parents have ended. Parents must exist before their children, so cycles are impossible.
-- Locking the parents serialises this with their end. Each live parent is also updated, once per transaction: a
-- session that ends the parent at REPEATABLE READ with an older snapshot then gets a serialization error instead of
-- overlooking the child.
CREATE OR REPLACE FUNCTION shiftboss.await_parents(p_task public.tasks) RETURNS public.tasks
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := shiftboss.now();
    v_parents uuid[];
    v_live uuid[];
    v_bad record;
BEGIN
    SELECT array_agg(p.id), array_agg(p.id) FILTER (WHERE p.status IN ('Queued', 'In Progress')) INTO v_parents, v_live
    FROM (SELECT id, status FROM public.tasks WHERE id = ANY (p_task.depends_on) ORDER BY id FOR NO KEY UPDATE) p;
    SELECT d INTO v_bad FROM unnest(p_task.depends_on) d WHERE d IS NULL OR d <> ALL (coalesce(v_parents, '{}'))
        LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'task % depends on task %, which does not exist', p_task.id, v_bad.d
            USING ERRCODE = 'foreign_key_violation',
                  HINT = 'Enqueue a task after the tasks that it depends on.';
    END IF;
    UPDATE public.tasks SET has_dependants = true, updated_at = v_now
    WHERE id = ANY (v_live) AND (NOT has_dependants OR xmin <> pg_current_xact_id()::xid);
    INSERT INTO shiftboss.dependencies (parent_id, child_id) SELECT p, p_task.id FROM unnest(v_live) p ON CONFLICT
        DO NOTHING;
    SELECT id, status INTO v_bad FROM public.tasks
    WHERE id = ANY (p_task.depends_on) AND status IN ('Failed', 'Cancelled') LIMIT 1;
    IF FOUND AND coalesce(p_task.on_dependency_failure, 'cancel') <> 'run' THEN
        p_task.status := CASE p_task.on_dependency_failure WHEN 'fail' THEN 'Failed' ELSE 'Cancelled' END;
        p_task.error_message := format('dependency %s is %s', v_bad.id, v_bad.status);
        p_task.generation_processed_at := v_now;
        DELETE FROM shiftboss.dependencies WHERE child_id = p_task.id;
    ELSIF v_live IS NOT NULL THEN
        p_task.hold := 'dependency';
    ELSE
        p_task.params := shiftboss.with_results(p_task.params, p_task.metadata, p_task.depends_on);
    END IF;
    RETURN p_task;
END $$;

-- Return the params with results of parents filled in. {"shiftboss.results": {"pages": 0, "all": [0, 1]}} in the
-- metadata names them by their positions in depends_on, from 0. Anything else there is ignored, so that the end of a
-- parent cannot fail.
CREATE OR REPLACE FUNCTION shiftboss.with_results(p_params jsonb, p_metadata jsonb, p_parents uuid[]) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_wanted jsonb := p_metadata -> 'shiftboss.results';
    v_given jsonb;
BEGIN
    IF v_wanted IS NULL OR jsonb_typeof(v_wanted) <> 'object' OR jsonb_typeof(p_params) <> 'object' THEN
        RETURN p_params;
    END IF;
    SELECT jsonb_object_agg(w.key, CASE jsonb_typeof(w.value) WHEN 'array' THEN r.results ELSE r.results -> 0 END)
        INTO v_given
    FROM jsonb_each(v_wanted) w CROSS JOIN LATERAL (
        SELECT coalesce(jsonb_agg(coalesce(t.result_data, 'null') ORDER BY p.n), '[]') AS results
        FROM jsonb_array_elements_text(CASE jsonb_typeof(w.value) WHEN 'array' THEN w.value
            ELSE jsonb_build_array(w.value) END)
            WITH ORDINALITY p (place, n)
        LEFT JOIN public.tasks t ON t.id = CASE WHEN p.place ~ '^[0-9]{1,6}$' THEN p_parents[p.place::int + 1] END) r;
    RETURN p_params || coalesce(v_given, '{}');
END $$;

-- Once per statement, notify sleeping workers (05_sleepers.sql). It reads no rows: claims discover new lanes
-- (20_claim.sql), and a transition table would cost 5 % of a single enqueue.
CREATE OR REPLACE FUNCTION shiftboss.announce_tasks() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (pg_sequence_last_value('shiftboss.armed') > pg_sequence_last_value('shiftboss.heard')) IS NOT FALSE THEN
        PERFORM shiftboss.ring();
    END IF;
    RETURN NULL;
END $$;

-- Reject an empty type. This is not a CHECK, because a table from before Shiftboss may contain such rows, which could
-- then not be cancelled, rescued or deleted.
CREATE OR REPLACE FUNCTION shiftboss.refuse_type() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'task_type must not be empty' USING ERRCODE = 'check_violation', CONSTRAINT = 'tasks_type_named',
        TABLE = 'tasks', HINT = 'Set task_type to the name of the handler that runs the task.';
END $$;

-- Runs when a plain UPDATE moves a task to another lane. A task that was unusable without a type becomes usable.
CREATE OR REPLACE FUNCTION shiftboss.announce_lane() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shiftboss.check_names(NEW.queue, NEW.task_type);
    IF NEW.task_type = '' AND OLD.task_type <> '' THEN
        PERFORM shiftboss.refuse_type();
    ELSIF NEW.hold = 'unusable' AND NEW.task_type <> '' THEN
        UPDATE public.tasks SET hold = NULL, updated_at = shiftboss.now() WHERE id = NEW.id AND hold = 'unusable';
    END IF;
    RETURN NULL;
END $$;

-- Runs when an unfinished task is deleted by hand: it counts as failed for the tasks that wait for it.
CREATE OR REPLACE FUNCTION shiftboss.release_children() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shiftboss.settle(ARRAY[OLD.id]);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.payload_limit() RETURNS int LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$ SELECT shiftboss.setting('max_payload_bytes', '1048576')::int $$;

CREATE OR REPLACE FUNCTION shiftboss.set_payload_limit(p_bytes int) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_bytes IS NULL OR p_bytes < 64 THEN
        RAISE EXCEPTION 'a payload limit of % bytes is too small: the minimum is 64', coalesce(p_bytes::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'The default is 1048576.';
    END IF;
    INSERT INTO shiftboss.settings (key, value) VALUES ('max_payload_bytes', p_bytes)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value;
END $$;

-- Create the trigger with the payload limit in its condition, so that no INSERT has to look it up. The condition is
-- short, because PostgreSQL parses it for every statement.
CREATE OR REPLACE FUNCTION shiftboss.guard_tasks() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format($trigger$
        CREATE OR REPLACE TRIGGER prepare_task BEFORE INSERT ON public.tasks FOR EACH ROW
        WHEN (pg_column_size(NEW.params) > %s OR num_nonnulls(NEW.depends_on, NEW.origin, NEW.requires, NEW.dedup_key,
              NEW.concurrency_key, NEW.deadline, NEW.timeout, NEW.backoff_max, NEW.backoff, NEW.backoff_factor,
              NEW.on_dependency_failure, NEW.run_at, NEW.hold, NEW.progress) > 0 OR NEW.priority <> 5
              OR NEW.max_attempts <> 3 OR NEW.status <> 'Queued' OR NEW.task_type = '' OR NEW.queue = ''
              OR octet_length(NEW.queue || NEW.task_type) > 500)
        EXECUTE FUNCTION shiftboss.prepare_task()$trigger$, shiftboss.payload_limit());
END $$;

CREATE OR REPLACE FUNCTION shiftboss.follow_payload_limit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF 'max_payload_bytes' IN (NEW.key, OLD.key) THEN
        PERFORM shiftboss.guard_tasks();
    END IF;
    RETURN NULL;
END $$;

DO $$ BEGIN PERFORM shiftboss.guard_tasks(); END $$;
CREATE OR REPLACE TRIGGER follow_payload_limit AFTER INSERT OR UPDATE OR DELETE ON shiftboss.settings
    FOR EACH ROW EXECUTE FUNCTION shiftboss.follow_payload_limit();
-- AFTER, because a BEFORE trigger makes every update of a task fetch and lock its row again, even of other columns.
CREATE OR REPLACE TRIGGER check_changed_terms
    AFTER UPDATE OF dedup_key, concurrency_key, deadline, timeout, backoff_max, queue, priority, max_attempts, backoff,
        backoff_factor, on_dependency_failure ON public.tasks
    FOR EACH ROW EXECUTE FUNCTION shiftboss.check_changed_terms();
-- Claims and reports change these columns, so its condition has the rules of check_terms for them.
CREATE OR REPLACE TRIGGER check_changed_state AFTER UPDATE OF status, hold, progress, run_at ON public.tasks
    FOR EACH ROW WHEN (NEW.status NOT IN ('Queued', 'In Progress', 'Complete', 'Failed', 'Cancelled')
        OR NEW.hold NOT IN ('dependency', 'limit', 'unusable', 'sleep', 'event', 'child')
        OR NEW.progress NOT BETWEEN 0 AND 100
        OR NEW.run_at <= '2000-01-01 00:00+00' OR NEW.run_at >= '2200-01-01 00:00+00')
    EXECUTE FUNCTION shiftboss.check_changed_terms();
CREATE OR REPLACE TRIGGER announce_tasks AFTER INSERT ON public.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION shiftboss.announce_tasks();
CREATE OR REPLACE TRIGGER announce_lane AFTER UPDATE OF queue, task_type, priority, tenant, requires ON public.tasks
    FOR EACH ROW EXECUTE FUNCTION shiftboss.announce_lane();
CREATE OR REPLACE TRIGGER release_children AFTER DELETE ON public.tasks FOR EACH ROW
    WHEN (OLD.has_dependants AND OLD.status IN ('Queued', 'In Progress'))
        EXECUTE FUNCTION shiftboss.release_children();

DROP FUNCTION IF EXISTS shiftboss.enqueue_giving_way(jsonb);

-- Enqueue tasks from any client: a JSON array of objects whose keys are columns of `tasks`. Returns one row per
-- object, in order. If an unfinished task has the same dedup_key, no task is created and its id is returned with
-- created = false. Locks are taken in a fixed order (parents as in a report, then keys by name). A caller whose own
-- transaction conflicts with another may still get a deadlock error and can retry. Steps: check the keys; delegate
-- tasks that need one by one treatment; lock the parents; insert all rows in one statement (`incoming`, `made`);
-- return the ids, looking up those of existing tasks by their dedup_key.
DROP FUNCTION IF EXISTS shiftboss.enqueue(jsonb);  -- had one parameter fewer
CREATE OR REPLACE FUNCTION shiftboss.enqueue(p_tasks jsonb, p_tries int DEFAULT 10)
RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_key text;
    v_ids uuid[];
    v_made boolean[];
    v_keys text[];
    v_linked boolean;
    v_unique boolean;
    v_normal uuid[];
BEGIN
    IF jsonb_typeof(p_tasks) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'the argument of enqueue must be a JSON array of tasks'
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'For example: SELECT * FROM shiftboss.enqueue(''[{"task_type": "resize", "params": {"id": 7}}]'')';
    END IF;
    SELECT bool_or(k = 'depends_on'), bool_or(k IN ('dedup_for', 'debounce', 'debounce_max')),
        min(k) FILTER (WHERE k NOT IN ('id', 'task_type', 'params', 'queue', 'priority', 'origin',
        'tenant', 'run_at', 'delay', 'deadline', 'timeout', 'dedup_key', 'concurrency_key', 'max_attempts', 'backoff',
        'backoff_factor', 'backoff_max', 'depends_on', 'on_dependency_failure', 'requires', 'region', 'run_id',
            'metadata',
        'dedup_for', 'debounce', 'debounce_max'))
    INTO v_linked, v_unique, v_key FROM jsonb_array_elements(p_tasks) t, jsonb_object_keys(t) k;
    IF v_key IS NOT NULL THEN
        RAISE EXCEPTION 'unknown field "%" in a task', v_key USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Known fields: task_type, params, queue, priority, origin, tenant, run_at, delay, deadline, '
                || 'timeout, dedup_key, dedup_for, debounce, debounce_max, concurrency_key, max_attempts, backoff, '
                || 'backoff_factor, backoff_max, depends_on, on_dependency_failure, requires, region, run_id, id, '
                || 'metadata.';
    END IF;
    IF EXISTS (SELECT FROM jsonb_array_elements(p_tasks) t WHERE t ->> 'task_type' IS NULL) THEN
        RAISE EXCEPTION 'a task has no task_type' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Set task_type to the name of the handler that runs the task.';
    END IF;
    SELECT jsonb_typeof(t -> 'params') INTO v_key FROM jsonb_array_elements(p_tasks) t
    WHERE jsonb_typeof(t -> 'params') NOT IN ('object', 'null') LIMIT 1;
    IF v_key IS NOT NULL THEN
        RAISE EXCEPTION 'params must be a JSON object, not %', v_key USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_unique THEN
        IF jsonb_array_length(p_tasks) > 1 THEN
            RETURN QUERY SELECT * FROM shiftboss.enqueue_in_turn(p_tasks);
        ELSE
            RETURN QUERY SELECT * FROM shiftboss.enqueue_unique(p_tasks -> 0, p_tries);
        END IF;
        RETURN;
    END IF;
    IF v_linked THEN
        IF EXISTS (SELECT FROM shiftboss.links(p_tasks) l
            JOIN jsonb_array_elements(p_tasks) WITH ORDINALITY p (task, n)
                   ON p.n < l.n AND (p.task ->> 'id')::uuid = l.parent WHERE p.task ->> 'dedup_key' IS NOT NULL) THEN
            RETURN QUERY SELECT * FROM shiftboss.enqueue_in_turn(p_tasks);
            RETURN;
        END IF;
        PERFORM shiftboss.lock_tasks(ARRAY(SELECT parent FROM shiftboss.links(p_tasks)));
    END IF;

    WITH incoming AS MATERIALIZED (
        SELECT o.n, coalesce(t.id, gen_random_uuid()) AS new_id, t.*
        FROM jsonb_array_elements(p_tasks) WITH ORDINALITY o (task, n),
            jsonb_to_record(o.task) AS t (id uuid, task_type text, params jsonb, queue text, priority smallint,
                origin text, tenant text, run_at timestamptz, delay interval, deadline timestamptz, timeout interval,
                dedup_key text, concurrency_key text, max_attempts smallint, backoff interval, backoff_factor real,
                backoff_max interval, depends_on uuid[], on_dependency_failure text, requires jsonb, region text,
                run_id uuid, metadata jsonb)
    ), made AS (
        INSERT INTO public.tasks (id, task_type, params, queue, priority, origin, tenant, run_at, deadline, timeout,
            dedup_key, concurrency_key, max_attempts, backoff, backoff_factor, backoff_max, depends_on,
            on_dependency_failure, requires, region, run_id, metadata, created_at, updated_at)
        SELECT i.new_id, i.task_type, coalesce(i.params, '{}'), coalesce(i.queue, 'default'), coalesce(i.priority, 5),
            i.origin, i.tenant, coalesce(i.run_at, v_now + i.delay), i.deadline, i.timeout, i.dedup_key,
            i.concurrency_key, coalesce(i.max_attempts, 3), i.backoff, i.backoff_factor, i.backoff_max, i.depends_on,
            i.on_dependency_failure, nullif(i.requires, 'null'), i.region, i.run_id, nullif(i.metadata, 'null'),
            v_now + i.n * interval '1 microsecond', v_now
        -- Insert parents before their children, otherwise keys by name. created_at preserves the given order.
        FROM incoming i ORDER BY CASE WHEN v_linked THEN i.n END, i.dedup_key COLLATE "C", i.n
        ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL AND status IN ('Queued', 'In Progress') DO NOTHING
        RETURNING tasks.id
    )
    SELECT array_agg(i.new_id ORDER BY i.n), array_agg(m.id IS NOT NULL ORDER BY i.n),
        array_agg(i.dedup_key ORDER BY i.n),
        array_agg(m.id) FILTER (WHERE i.origin IS NOT NULL AND i.priority = 5)
    INTO v_ids, v_made, v_keys, v_normal
    FROM incoming i LEFT JOIN made m ON m.id = i.new_id;
    IF v_normal IS NOT NULL THEN  -- an explicit priority of 5, which the rule for origins took for the default
        UPDATE public.tasks t SET priority = 5 WHERE t.id = ANY (v_normal) AND t.priority <> 5;
    END IF;

    FOR n IN 1 .. coalesce(cardinality(v_ids), 0) LOOP
        created := v_made[n];
        id := CASE WHEN created THEN v_ids[n] ELSE
            (SELECT t.id FROM public.tasks t WHERE t.dedup_key = v_keys[n]
                AND t.status IN ('Queued', 'In Progress')) END;
        IF id IS NULL THEN  -- the existing task ended between the two statements: try again
            IF p_tries <= 1 THEN
                RAISE EXCEPTION 'cannot enqueue: tasks with the dedup_key "%" start and end too quickly', v_keys[n]
                    USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
            END IF;
            SELECT e.id, e.created INTO id, created
                FROM shiftboss.enqueue(jsonb_build_array(p_tasks -> (n - 1)), p_tries - 1) e;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- The function runs as its owner, so that a role can enqueue without other privileges. See `shiftboss db roles`.
REVOKE EXECUTE ON FUNCTION shiftboss.enqueue(jsonb, int) FROM PUBLIC;

-- The dependencies of the tasks in the array: the position of a task and the id of its parent.
CREATE OR REPLACE FUNCTION shiftboss.links(p_tasks jsonb) RETURNS TABLE (n bigint, parent uuid) LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.n, d::uuid FROM jsonb_array_elements(p_tasks) WITH ORDINALITY t (task, n), jsonb_array_elements_text(
        CASE jsonb_typeof(t.task -> 'depends_on') WHEN 'array' THEN t.task -> 'depends_on' ELSE '[]' END) d
$$;

-- Enqueue tasks one by one, because a parent may already exist under its dedup_key: its children then wait for that
-- task.
CREATE OR REPLACE FUNCTION shiftboss.enqueue_in_turn(p_tasks jsonb) RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_task jsonb;
    v_real jsonb := '{}';  -- maps each given id to the actual id
BEGIN
    FOR v_task IN SELECT t FROM jsonb_array_elements(p_tasks) t LOOP
        SELECT v_task || jsonb_build_object('depends_on',
            jsonb_agg(coalesce(v_real ->> l.parent::text, l.parent::text)))
        INTO v_task FROM shiftboss.links(jsonb_build_array(v_task)) l;
        SELECT e.id, e.created INTO id, created FROM shiftboss.enqueue(jsonb_build_array(v_task)) e;
        v_real := v_real || jsonb_build_object(coalesce((v_task ->> 'id')::uuid, id), id);
        RETURN NEXT;
    END LOOP;
END $$;
