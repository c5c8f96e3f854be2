-- Limits of a queue or task type across the whole fleet. Limits of an operator override those that workers declare in
-- code.

DROP FUNCTION IF EXISTS shiftboss.set_limit(text, text, int, int, int, interval);

-- Set the limits of an operator. If all are NULL, the limits are removed. If the code declares limits, a row without
-- figures stays, so that the next worker does not restore them; reset_limit does.
CREATE OR REPLACE FUNCTION shiftboss.set_limit(p_kind text, p_name text, p_max_running int DEFAULT NULL,
    p_max_per_key int DEFAULT NULL, p_rate int DEFAULT NULL, p_rate_period interval DEFAULT NULL,
        p_rate_per text DEFAULT 'all')
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM shiftboss.rate_buckets WHERE kind = p_kind AND name = p_name;
    IF coalesce(p_max_running, p_max_per_key, p_rate) IS NULL THEN
        DELETE FROM shiftboss.limits WHERE kind = p_kind AND name = p_name AND code IS NULL;
        UPDATE shiftboss.limits SET max_running = NULL, max_per_key = NULL, rate = NULL, rate_period = NULL,
            tokens = NULL,
            refilled_at = NULL, set_by = 'operator', rate_per = 'all' WHERE kind = p_kind AND name = p_name;
    ELSE
        INSERT INTO shiftboss.limits (kind, name, max_running, max_per_key, rate, rate_period, rate_per)
        VALUES (p_kind, p_name, p_max_running, p_max_per_key, p_rate,
            CASE WHEN p_rate IS NOT NULL THEN coalesce(p_rate_period, '1 minute') END,
            CASE WHEN p_rate IS NOT NULL THEN coalesce(p_rate_per, 'all') ELSE 'all' END)
        ON CONFLICT (kind, name) DO UPDATE SET max_running = excluded.max_running, max_per_key = excluded.max_per_key,
            rate = excluded.rate, rate_period = excluded.rate_period, rate_per = excluded.rate_per, tokens = NULL,
            refilled_at = NULL, set_by = 'operator';
    END IF;
    PERFORM shiftboss.follow_limits(p_kind, ARRAY[p_name]);
END $$;

-- Remove the limits of an operator, so that the limits in code apply. Returns whether there were any.
CREATE OR REPLACE FUNCTION shiftboss.reset_limit(p_kind text, p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_code jsonb;
BEGIN
    DELETE FROM shiftboss.limits WHERE kind = p_kind AND name = p_name AND set_by = 'operator' RETURNING code
        INTO v_code;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF v_code IS NOT NULL THEN
        PERFORM shiftboss.declare_limits(jsonb_build_array(v_code || jsonb_build_object('name', p_name)));
    END IF;
    PERFORM shiftboss.follow_limits(p_kind, ARRAY[p_name]);
    RETURN true;
END $$;

-- Store the limits in the code of a worker that starts, one object per task type: name, max_running, max_per_key,
-- rate, rate_period, rate_per. A type without figures has no limits in code. Writes only changes. Returns the types
-- that changed.
CREATE OR REPLACE FUNCTION shiftboss.declare_limits(p_limits jsonb) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d record;
    v_changed text[] := '{}';
BEGIN
    FOR d IN
        SELECT x.*, nullif(jsonb_strip_nulls(o - 'name'), '{}') AS code
        FROM jsonb_array_elements(p_limits) o,
            jsonb_to_record(o) AS x (name text, max_running int, max_per_key int, rate int, rate_period interval,
                rate_per text)
        WHERE nullif(jsonb_strip_nulls(o - 'name'), '{}') IS DISTINCT FROM
            (SELECT l.code FROM shiftboss.limits l WHERE l.kind = 'task_type' AND l.name = x.name)
        ORDER BY x.name
    LOOP
        IF d.code IS NULL THEN
            DELETE FROM shiftboss.limits WHERE kind = 'task_type' AND name = d.name
                AND (set_by = 'code' OR coalesce(max_running, max_per_key, rate) IS NULL);
            UPDATE shiftboss.limits SET code = NULL WHERE kind = 'task_type' AND name = d.name;
        ELSE
            INSERT INTO shiftboss.limits AS l (kind, name, max_running, max_per_key, rate, rate_period, rate_per,
                set_by, code)
            VALUES ('task_type', d.name, d.max_running, d.max_per_key, d.rate,
                CASE WHEN d.rate IS NOT NULL THEN coalesce(d.rate_period, '1 minute') END,
                    coalesce(d.rate_per, 'all'), 'code', d.code)
            ON CONFLICT (kind, name) DO UPDATE SET code = excluded.code;
            UPDATE shiftboss.limits SET max_running = d.max_running, max_per_key = d.max_per_key, rate = d.rate,
                rate_period = CASE WHEN d.rate IS NOT NULL THEN coalesce(d.rate_period, '1 minute') END,
                rate_per = coalesce(d.rate_per, 'all'), tokens = NULL, refilled_at = NULL
            WHERE kind = 'task_type' AND name = d.name AND set_by = 'code';
            DELETE FROM shiftboss.rate_buckets WHERE kind = 'task_type' AND name = d.name;
        END IF;
        v_changed := v_changed || d.name;
    END LOOP;
    IF v_changed <> '{}' THEN
        PERFORM shiftboss.follow_limits('task_type', v_changed);
    END IF;
    RETURN v_changed;
END $$;

-- Release tasks that the previous limits held back.
CREATE OR REPLACE FUNCTION shiftboss.follow_limits(p_kind text, p_names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_kind = 'task_type' THEN
        PERFORM shiftboss.unpark_all(p_names);
    END IF;
    PERFORM pg_notify('shiftboss_tasks', '*');
END $$;

-- The command that doubles one figure of a limit (max_running, max_per_key or rate) and keeps the others.
CREATE OR REPLACE FUNCTION shiftboss.raise_limit_command(l shiftboss.limits, p_figure text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('shiftboss queues limit %s%s', CASE l.kind WHEN 'task_type' THEN '--type ' ELSE '' END,
            shiftboss.shell_word(l.name))
        || coalesce(' --running ' || CASE p_figure WHEN 'max_running' THEN greatest(l.max_running * 2, 1)
            ELSE l.max_running END, '')
        || coalesce(' --per-key ' || CASE p_figure WHEN 'max_per_key' THEN l.max_per_key * 2 ELSE l.max_per_key END,
            '')
        || coalesce(' --rate ' || CASE p_figure WHEN 'rate' THEN l.rate * 2 ELSE l.rate END
            || ' --per ' || trim_scale(extract(epoch FROM l.rate_period)) || 's'
            || CASE l.rate_per WHEN 'all' THEN '' ELSE ' --each ' || l.rate_per END, '')
$$;
