-- Alerts. Each alert sends one notification when it starts and one when it ends: its row is updated in the transaction
-- that creates the notifications.

-- Start and end alerts according to what the rules p_rules found: [{"rule", "subject", "severity", "message",
-- "advice", "value", "threshold"}]. An alert ends when nothing was found for p_quiet. p_targets are the targets of
-- notifications, p_task is the type of a task to enqueue for each. Returns the alerts that started or ended.
CREATE OR REPLACE FUNCTION shiftboss.settle_alerts(p_rules text[], p_found jsonb, p_targets text[] DEFAULT '{}',
    p_task text DEFAULT NULL, p_quiet interval DEFAULT '30 seconds')
RETURNS TABLE (alert_id bigint, moment text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    c record;
BEGIN
    FOR c IN
        WITH found AS (
            SELECT DISTINCT ON (x.rule, coalesce(x.subject, '')) x.rule, coalesce(x.subject, '') AS subject,
                x.severity, x.message,
                x.advice, x.value, x.threshold
            FROM jsonb_to_recordset(p_found) AS x (rule text, subject text, severity text, message text, advice text,
                value double precision, threshold double precision)
        ), known AS (
            UPDATE shiftboss.alerts a SET seen_at = v_now, message = f.message, advice = f.advice, value = f.value,
                severity = f.severity, threshold = f.threshold
            FROM found f WHERE a.rule = f.rule AND a.subject = f.subject AND a.ended_at IS NULL RETURNING a.rule,
                a.subject
        ), started AS (
            INSERT INTO shiftboss.alerts (rule, subject, severity, message, advice, value, threshold, started_at,
                seen_at)
            SELECT f.*, v_now, v_now FROM found f
            WHERE NOT EXISTS (SELECT FROM known k WHERE k.rule = f.rule AND k.subject = f.subject)
            ON CONFLICT DO NOTHING RETURNING *
        ), ended AS (
            UPDATE shiftboss.alerts a SET ended_at = v_now
            WHERE a.ended_at IS NULL AND a.rule = ANY (p_rules) AND a.seen_at <= v_now - p_quiet
              AND NOT EXISTS (SELECT FROM found f WHERE f.rule = a.rule AND f.subject = a.subject) RETURNING *
        )
        SELECT 'start' AS moment, s.* FROM started s UNION ALL SELECT 'end', e.* FROM ended e
    LOOP
        INSERT INTO shiftboss.alert_deliveries (alert_id, moment, target, next_at)
        SELECT c.id, c.moment, t, v_now FROM unnest(p_targets) t ON CONFLICT DO NOTHING;
        PERFORM shiftboss.note('alert.' || CASE c.moment WHEN 'start' THEN 'started' ELSE 'ended' END, NULL, NULL,
            NULL,
            jsonb_build_object('rule', c.rule, 'subject', c.subject, 'message', c.message));
        IF p_task IS NOT NULL THEN
            INSERT INTO public.tasks (task_type, params) VALUES (p_task, jsonb_build_object('alert', to_jsonb(c)));
        END IF;
        alert_id := c.id;
        moment := c.moment;
        RETURN NEXT;
    END LOOP;
END $$;

-- Take notifications that are due, with their alert. This postpones their next attempt, so that two senders do not
-- send the same notification.
CREATE OR REPLACE FUNCTION shiftboss.take_deliveries(p_targets text[], p_limit int DEFAULT 20)
RETURNS TABLE (id bigint, target text, moment text, attempts int, alert jsonb) LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    WITH due AS (
        UPDATE shiftboss.alert_deliveries d SET attempts = d.attempts + 1, next_at = shiftboss.now()
            + least(interval '5 seconds' * 2 ^ d.attempts, interval '1 hour')
        WHERE d.id IN (SELECT x.id FROM shiftboss.alert_deliveries x WHERE x.next_at <= shiftboss.now()
            AND x.target = ANY (p_targets)
            ORDER BY x.next_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
        RETURNING d.*)
    SELECT d.id, d.target, d.moment, d.attempts, to_jsonb(a) FROM due d JOIN shiftboss.alerts a ON a.id = d.alert_id
        ORDER BY d.id
$$;

-- Record the result of a delivery attempt. Without an error, the notification is delivered. Gives up after p_most
-- attempts.
CREATE OR REPLACE FUNCTION shiftboss.delivered(p_id bigint, p_error text DEFAULT NULL, p_most int DEFAULT 12)
RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE shiftboss.alert_deliveries SET error = p_error,
        delivered_at = CASE WHEN p_error IS NULL THEN shiftboss.now() END,
        next_at = CASE WHEN p_error IS NULL OR attempts >= p_most THEN NULL ELSE next_at END
    WHERE id = p_id
$$;

CREATE OR REPLACE FUNCTION shiftboss.tidy_alerts(p_older interval) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM shiftboss.alerts WHERE ended_at < shiftboss.now() - p_older
$$;
