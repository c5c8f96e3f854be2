-- The guarantees, each with a query for its violations. `prepare.sql` creates the tables that they read.

-- promise: every task has ended
SELECT t.id, t.task_type, t.status, t.hold, t.worker_id,
    (SELECT string_agg(w.reason || ': ' || w.detail, '; ') FROM shiftboss.why(t.id) w) AS why
FROM shiftboss_chaos.ours t WHERE t.status IN ('Queued', 'In Progress');

-- promise: no task is deleted
SELECT d.task, d.before FROM shiftboss_chaos.changes d JOIN shiftboss_chaos.changes i ON i.task = d.task
    AND i.before IS NULL AND i.after = 'Queued' WHERE d.after IS NULL;

-- promise: no task completes twice
SELECT task, count(*) FROM shiftboss_chaos.changes WHERE after = 'Complete' GROUP BY task HAVING count(*) > 1;

-- promise: a finished task changes only if it is retried
SELECT c.task, c.before, c.after FROM shiftboss_chaos.changes c
WHERE c.before IN ('Complete', 'Failed', 'Cancelled') AND c.after IS NOT NULL AND c.after <> c.before
  AND (c.before = 'Complete' OR c.after <> 'Queued' OR NOT EXISTS (
    SELECT FROM shiftboss_chaos.asked a WHERE a.task = c.task AND a.what = 'retry'));

-- promise: no lease is issued twice
SELECT lease, count(*) FROM shiftboss_chaos.claims GROUP BY lease HAVING count(*) > 1 OR lease IS NULL;

-- promise: every claim has exactly one end in the history
SELECT c.task, c.lease, count(a.lease) FROM shiftboss_chaos.claims c JOIN shiftboss_chaos.ours t ON t.id = c.task
LEFT JOIN (SELECT task_id, lease FROM shiftboss.past_attempts UNION ALL
    SELECT id, lease FROM shiftboss_chaos.ours WHERE status = 'Complete') a ON a.task_id = c.task AND a.lease = c.lease
WHERE t.status NOT IN ('Queued', 'In Progress') GROUP BY 1, 2 HAVING count(a.lease) <> 1;

-- promise: a result comes from the attempt that held the lease
SELECT id, task_type, lease, result_data FROM shiftboss_chaos.ours
WHERE status = 'Complete' AND (result_data ->> 'lease')::bigint IS DISTINCT FROM lease;

-- promise: an error comes from the attempt that held the lease
SELECT a.task_id, a.lease, a.error FROM shiftboss.past_attempts a JOIN shiftboss_chaos.ours t ON t.id = a.task_id
WHERE a.outcome = 'failed' AND a.error LIKE '%as planned, lease %'
  AND substring(a.error FROM 'as planned, lease (-?[0-9]+)')::bigint <> a.lease;

-- promise: no handler runs without a claim, or twice for one claim
SELECT l.task, l.lease, count(*) FROM shiftboss_chaos.ledger l
LEFT JOIN shiftboss_chaos.claims c ON c.lease = l.lease AND c.task = l.task
WHERE l.what = 'run' GROUP BY 1, 2 HAVING count(*) > 1 OR count(c.lease) = 0;

-- promise: no task completes without having run
SELECT t.id, t.lease FROM shiftboss_chaos.ours t WHERE t.status = 'Complete' AND NOT EXISTS (
    SELECT FROM shiftboss_chaos.ledger l WHERE l.lease = t.lease AND l.task = t.id AND l.what = 'run');

-- promise: a recorded step never runs again
SELECT l.task, l.what, l.lease FROM shiftboss_chaos.ledger l
JOIN shiftboss_chaos.claims c ON c.lease = l.lease
JOIN shiftboss_chaos.step_changes s ON s.task = l.task AND s.name = l.what AND s.what = 'INSERT' AND s.seq < c.seq
WHERE l.what <> 'run' AND NOT EXISTS (SELECT FROM shiftboss_chaos.step_changes d
    WHERE d.task = s.task AND d.name = s.name AND d.what = 'DELETE' AND d.seq > s.seq AND d.seq < c.seq);

-- promise: a recorded step never changes
SELECT task, name FROM shiftboss_chaos.step_changes WHERE what = 'UPDATE';

-- promise: a step is recorded by the attempt that ran it
SELECT s.task_id, s.name, s.lease, s.result FROM shiftboss.steps s JOIN shiftboss_chaos.ours t ON t.id = s.task_id
WHERE s.kind = 'step' AND s.result <> to_jsonb(s.lease);

-- promise: a task gets the results of its recorded steps
SELECT t.id, t.result_data FROM shiftboss_chaos.ours t WHERE t.status = 'Complete' AND t.result_data ? 'steps'
  AND t.result_data -> 'steps' IS DISTINCT FROM (SELECT jsonb_agg(s.result ORDER BY s.name) FROM shiftboss.steps s
    WHERE s.task_id = t.id AND s.kind = 'step');

-- promise: no more tasks run at a time than the limit allows
SELECT seq, task, running FROM (SELECT c.seq, c.task, sum((c.after = 'In Progress')::int - (c.before = 'In Progress')::int)
    OVER (ORDER BY c.seq) AS running FROM shiftboss_chaos.changes c JOIN shiftboss_chaos.ours t ON t.id = c.task
    WHERE t.task_type = 'chaos.limited' AND c.before IS NOT NULL AND c.after IS NOT NULL) r
WHERE running > (SELECT max_running FROM shiftboss.limits WHERE name = 'chaos.limited');

-- promise: no more tasks with one key run at a time than the limit allows
SELECT seq, task, key, running FROM (SELECT c.seq, c.task, t.concurrency_key AS key,
    sum((c.after = 'In Progress')::int - (c.before = 'In Progress')::int)
        OVER (PARTITION BY t.concurrency_key ORDER BY c.seq) AS running
    FROM shiftboss_chaos.changes c JOIN shiftboss_chaos.ours t ON t.id = c.task
    WHERE t.task_type = 'chaos.limited' AND c.before IS NOT NULL AND c.after IS NOT NULL) r
WHERE running > (SELECT max_per_key FROM shiftboss.limits WHERE name = 'chaos.limited');

-- promise: only one live task has a unique key
SELECT seq, task, key, live FROM (SELECT c.seq, c.task, t.dedup_key AS key,
    sum(coalesce(c.after IN ('Queued', 'In Progress'), false)::int - coalesce(c.before IN ('Queued', 'In Progress'), false)::int)
        OVER (PARTITION BY t.dedup_key ORDER BY c.seq) AS live
    FROM shiftboss_chaos.changes c JOIN shiftboss_chaos.ours t ON t.id = c.task WHERE t.dedup_key IS NOT NULL) r
WHERE live > 1;

-- promise: a dependant starts after its parents have ended
SELECT t.id, p.parent FROM shiftboss_chaos.ours t CROSS JOIN LATERAL unnest(t.depends_on) p (parent)
WHERE (SELECT min(c.seq) FROM shiftboss_chaos.claims c WHERE c.task = t.id) < coalesce((SELECT min(e.seq)
    FROM shiftboss_chaos.changes e WHERE e.task = p.parent AND e.after IN ('Complete', 'Failed', 'Cancelled')), 1e18);

-- promise: a dependant follows its failure policy
SELECT t.id, t.status, t.on_dependency_failure, p.id AS parent, p.status AS parent_status
FROM shiftboss_chaos.ours t JOIN shiftboss_chaos.ours p ON p.id = ANY (t.depends_on) AND p.status IN ('Failed', 'Cancelled')
WHERE t.status = 'Complete' AND t.on_dependency_failure <> 'run'
  AND NOT EXISTS (SELECT FROM shiftboss_chaos.asked a WHERE a.task IN (t.id, p.id) AND a.what = 'retry');

-- promise: a delayed task does not start early
SELECT t.id, t.created_at, c.at FROM shiftboss_chaos.ours t JOIN shiftboss_chaos.claims c ON c.task = t.id
WHERE t.metadata ? 'delay' AND c.at < t.created_at + make_interval(secs => (t.metadata ->> 'delay')::float8 - 0.001);

-- promise: a task gets each event once, in order
SELECT t.id, t.status, t.result_data FROM shiftboss_chaos.ours t WHERE t.task_type = 'chaos.waiting'
  AND (t.status = 'Complete' AND t.result_data -> 'events' IS DISTINCT FROM '[1, 2]'
    OR EXISTS (SELECT FROM shiftboss.steps s WHERE s.task_id = t.id AND s.event_id IS NOT NULL
        GROUP BY s.event_id HAVING count(*) > 1));

-- promise: a parent gets the results of its children
SELECT t.id, t.result_data FROM shiftboss_chaos.ours t WHERE t.task_type = 'chaos.nesting' AND t.status = 'Complete'
  AND t.result_data -> 'children' IS DISTINCT FROM (SELECT jsonb_agg(c.lease ORDER BY s.ordinal) FROM shiftboss.steps s
    JOIN shiftboss_chaos.ours c ON c.id = s.child_id AND c.status = 'Complete' WHERE s.task_id = t.id AND s.kind = 'child');

-- promise: a task fails only for an expected reason
SELECT t.id, t.task_type, t.attempts, t.max_attempts, t.error_message FROM shiftboss_chaos.ours t
WHERE t.status = 'Failed' AND t.attempts < t.max_attempts AND t.task_type <> 'chaos.hopeless'
  AND NOT (t.on_dependency_failure = 'fail' AND EXISTS (SELECT FROM shiftboss_chaos.changes p
    WHERE p.task = ANY (t.depends_on) AND p.after IN ('Failed', 'Cancelled')))
  AND NOT (coalesce(t.error_message, '') LIKE 'poison:%' AND (SELECT count(*) >= 2 AND bool_or(a.outcome = 'crashed')
    FROM shiftboss.past_attempts a WHERE a.task_id = t.id AND a.outcome IN ('crashed', 'interrupted')))
  AND NOT (t.task_type = 'chaos.nesting' AND EXISTS (SELECT FROM shiftboss.steps s JOIN shiftboss_chaos.ours c
    ON c.id = s.child_id WHERE s.task_id = t.id AND c.status IN ('Failed', 'Cancelled')));

-- promise: an attempt fails only if its handler does
SELECT a.task_id, t.task_type, a.outcome, a.error FROM shiftboss.past_attempts a
JOIN shiftboss_chaos.ours t ON t.id = a.task_id WHERE a.outcome IN ('failed', 'timeout')
  AND a.error NOT LIKE '%as planned, lease %' AND t.task_type <> 'chaos.nesting';

-- promise: a task is cancelled only on request
SELECT t.id, t.task_type, t.error_message FROM shiftboss_chaos.ours t WHERE t.status = 'Cancelled'
  AND NOT EXISTS (SELECT FROM shiftboss_chaos.asked a WHERE a.task = t.id AND a.what = 'cancel')
  AND NOT EXISTS (SELECT FROM shiftboss_chaos.changes p WHERE p.task = ANY (t.depends_on) AND p.after IN ('Failed', 'Cancelled'))
  -- Children are cancelled with their waiting parent. If the parent was retried, its steps no longer exist.
  AND NOT (coalesce(t.error_message, '') = 'the task that waited for it was cancelled' AND EXISTS (SELECT FROM shiftboss_chaos.asked a
    JOIN shiftboss_chaos.ours p ON p.id = a.task AND p.task_type = 'chaos.nesting' AND p.created_at < t.created_at
    WHERE a.what = 'cancel'));
