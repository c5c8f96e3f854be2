-- Decide which task is to blame when a worker is gone. Only that task spends an attempt:
--   * If the process reported the lease it was working on (p_suspects contains one), that attempt ends as p_outcome.
--     The others return to the queue unspent, as `interrupted`.
--   * If several leases may be the cause, or nothing is known, all of them are suspects. A suspect returns to the
--     queue unspent, once, with crashes = 1, so that workers run it alone from then on.
--   * If the worker had only one task, or one suspect that ran alone, the attempt ends as p_outcome. A known suspect
--     that did not run alone, because its worker does not support this, ends as lost.
-- A task that kills its worker is therefore found in its second attempt at the latest, and a task that kills whole
-- hosts spends attempts from its second loss on. External workers cannot run a task alone: their attempts are always
-- spent.

-- End attempts whose workers are gone. The caller has locked the tasks. `held` reads the tasks, `judged` decides for
-- each.
CREATE OR REPLACE FUNCTION shiftboss.judge(p_ids uuid[], p_leases bigint[], p_reasons text[], p_outcome text,
    p_suspects bigint[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    d record;
BEGIN
    IF cardinality(p_ids) > 1 THEN  -- take all locks of the calls below at once, in the common order
        PERFORM shiftboss.lock_down(p_ids);
        PERFORM shiftboss.lock_limits(p_ids);
    END IF;
    FOR d IN
        WITH held AS (
            SELECT u.*, t.worker_id, t.crashes, u.lease IS NULL
                OR coalesce(w.instance_type = 'external', true) AS external,
                coalesce(cardinality(p_suspects), 0) = 0 OR u.lease = ANY (p_suspects) AS accused
            FROM unnest(p_ids, p_leases, p_reasons) u (id, lease, reason)
            JOIN public.tasks t ON t.id = ANY (ARRAY[u.id]) LEFT JOIN public.workers w ON w.id = t.worker_id
        ), judged AS (
            SELECT *, CASE WHEN external THEN p_outcome WHEN NOT accused THEN 'innocent'
                WHEN count(*) FILTER (WHERE accused) OVER (PARTITION BY worker_id) = 1 THEN p_outcome
                WHEN crashes > 0 THEN 'lost' ELSE 'suspect' END AS verdict
            FROM held
        )
        SELECT verdict IN ('innocent', 'suspect') AS unspent, array_agg(id) AS ids, array_agg(lease) AS leases,
            array_agg(verdict) AS verdicts, array_agg(reason) AS reasons,
            array_agg(id) FILTER (WHERE verdict = 'suspect') AS suspects
        FROM judged GROUP BY 1
    LOOP
        IF d.unspent THEN
            PERFORM shiftboss.defer(d.ids, d.leases, array_fill(interval '0', ARRAY[cardinality(d.ids)]),
                ARRAY(SELECT CASE v WHEN 'suspect' THEN r || '; this task may be the cause, so it runs alone next'
                    ELSE r || '; another task is to blame' END FROM unnest(d.verdicts, d.reasons) x (v, r)));
            UPDATE shiftboss.past_attempts a SET outcome = 'interrupted'
                FROM unnest(d.ids, d.leases) u (id, lease) WHERE a.task_id = ANY (ARRAY[u.id]) AND a.lease = u.lease;
            UPDATE public.tasks SET crashes = 1 WHERE id = ANY (d.suspects);
        ELSE
            PERFORM shiftboss.fail(d.ids, d.leases, d.reasons, d.verdicts);
        END IF;
    END LOOP;
END $$;

-- End the attempts of a worker that is gone. p_outcome: crashed if its process is known to have died, otherwise lost.
-- Returns the number of its tasks.
CREATE OR REPLACE FUNCTION shiftboss.worker_died(p_worker text, p_outcome text DEFAULT 'lost',
    p_reason text DEFAULT NULL,
    p_suspects bigint[] DEFAULT NULL) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_ids uuid[];
    v_leases bigint[];
    v_count int;
BEGIN
    SELECT array_agg(id), array_agg(lease), count(*) INTO v_ids, v_leases, v_count FROM (
        SELECT id, lease FROM public.tasks WHERE status = 'In Progress' AND worker_id = p_worker
        ORDER BY id FOR NO KEY UPDATE) t;
    IF v_count > 0 THEN
        PERFORM shiftboss.judge(v_ids, v_leases, array_fill(coalesce(p_reason, 'its worker is gone'), ARRAY[v_count]),
            p_outcome, p_suspects);
    END IF;
    RETURN v_count;
END $$;

-- Whether a live supervisor may still report why this worker sends no heartbeats: it has better information than an
-- expired lease. Limited in time, so that no task waits for a supervisor that never reports.
CREATE OR REPLACE FUNCTION shiftboss.answered_for(p_worker public.workers) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(p_worker.lease_expires_at
            + shiftboss.setting('supervisor_silent_after', '30 seconds')::interval > shiftboss.now(), false)
        AND EXISTS (SELECT FROM public.health h WHERE h.member_id = p_worker.id
            AND h.status IN ('starting', 'healthy', 'stopping') AND shiftboss.is_supervised(h.host))
$$;
