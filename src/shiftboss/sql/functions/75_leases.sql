-- Named leases: a random token, an expiry by the database's clock, and renewals by short statements. No transaction
-- stays open.
--
-- Row locks serialise access. Work under a lease takes FOR KEY SHARE and a renewal FOR NO KEY UPDATE, which do not
-- conflict. A new holder takes FOR UPDATE, so it never gets the lease while a transaction works under it.

-- Whether the lease is in force. An expiry further away than the lease's duration means that the clock was set back
-- since: such a lease must not last forever.
CREATE OR REPLACE FUNCTION shiftboss.in_force(p_lease shiftboss.leases, p_now timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p_lease.expires_at > p_now AND p_lease.expires_at <= p_now + p_lease.duration
$$;

-- Take the lease if it is free, expired, or held with p_over, the token of a holder that the caller knows to be dead.
-- Returns the resulting token and holder. Repeating a call is harmless.
CREATE OR REPLACE FUNCTION shiftboss.acquire_lease(p_name text, p_token uuid, p_holder jsonb, p_duration interval,
    p_event text DEFAULT NULL, p_over uuid DEFAULT NULL)
RETURNS TABLE (token uuid, holder jsonb) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := shiftboss.now();
    v_former uuid;
    v_taken boolean;
BEGIN
    SELECT l.token INTO v_former FROM shiftboss.leases l
    WHERE l.name = p_name AND (l.token IN (p_token, p_over) OR NOT shiftboss.in_force(l, v_now))
        FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE shiftboss.leases l SET token = p_token, holder = p_holder, duration = p_duration,
            expires_at = v_now + p_duration,
            acquired_at = CASE WHEN l.token = p_token THEN l.acquired_at ELSE v_now END WHERE l.name = p_name;
        v_taken := v_former <> p_token;
    ELSE
        INSERT INTO shiftboss.leases (name, token, holder, duration, acquired_at, expires_at)
        VALUES (p_name, p_token, p_holder, p_duration, v_now, v_now + p_duration) ON CONFLICT DO NOTHING;
        v_taken := FOUND;
    END IF;
    IF v_taken AND p_name = 'leader' THEN
        PERFORM shiftboss.count_up('leader_changes');
    END IF;
    IF v_taken AND p_event IS NOT NULL THEN
        PERFORM shiftboss.note(p_event, NULL, NULL, NULL, p_holder);
    END IF;
    RETURN QUERY SELECT l.token, l.holder FROM shiftboss.leases l WHERE l.name = p_name;
END $$;

-- Extend a lease, even an expired one that no other process has taken. Returns false if it is not held with this
-- token.
CREATE OR REPLACE FUNCTION shiftboss.renew_lease(p_name text, p_token uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE shiftboss.leases SET expires_at = shiftboss.now() + duration WHERE name = p_name AND token = p_token;
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.release_lease(p_name text, p_token uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM shiftboss.leases WHERE name = p_name AND token = p_token;
    RETURN FOUND;
END $$;

-- The first statement of a transaction under a lease: until it ends, no other process can take the lease. Raises an
-- error for a former holder. Waits for locks and for the client are limited, because a successor cannot take the lease
-- while a transaction of a hung holder is open.
CREATE OR REPLACE FUNCTION shiftboss.fence(p_name text, p_token uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM shiftboss.leases l
    WHERE l.name = p_name AND l.token = p_token AND shiftboss.in_force(l, shiftboss.now()) FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this process does not hold the lease "%": nothing was done', p_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'To see the holders: SELECT * FROM shiftboss.leases';
    END IF;
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    PERFORM set_config('idle_in_transaction_session_timeout', '10s', true);
END $$;
