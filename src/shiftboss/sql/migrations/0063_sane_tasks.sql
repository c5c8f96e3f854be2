-- Terms of a task that went in well and hurt later: a time or a duration that a client can not read stops every claim that
-- meets it, and a key that is too long for its index goes in while the index does not hold it and fails each claim.

-- New ones are refused by shiftboss.check_terms, where it costs a claim nothing; old ones are brought within its bounds.
UPDATE public.tasks SET
    deadline = CASE WHEN deadline > '2000-01-01 00:00+00' AND deadline < '2200-01-01 00:00+00' THEN deadline END,
    timeout = least(timeout, interval '10 years'), backoff_max = least(backoff_max, interval '10 years'),
    dedup_key = CASE WHEN octet_length(dedup_key) > 1000 THEN 'md5:' || md5(dedup_key) ELSE dedup_key END,
    concurrency_key = CASE WHEN octet_length(concurrency_key) > 1000 THEN 'md5:' || md5(concurrency_key) ELSE concurrency_key END
WHERE deadline <= '2000-01-01 00:00+00' OR deadline >= '2200-01-01 00:00+00' OR timeout > interval '10 years'
    OR backoff_max > interval '10 years' OR octet_length(dedup_key) > 1000 OR octet_length(concurrency_key) > 1000;
UPDATE public.tasks SET status = 'Failed', error_message = 'its task_type or queue is longer than 500 bytes',
    generation_processed_at = shiftboss.now()
WHERE status IN ('Queued', 'In Progress') AND (octet_length(task_type) > 500 OR octet_length(queue) > 500);

ALTER TABLE public.workers DROP CONSTRAINT IF EXISTS workers_id_length;
ALTER TABLE public.workers ADD CONSTRAINT workers_id_length CHECK (octet_length(id) <= 500) NOT VALID;

-- Functions that take other arguments now.
DROP FUNCTION IF EXISTS shiftboss.stale(uuid[], bigint[]);
DROP FUNCTION IF EXISTS shiftboss.after_end(uuid[], uuid[], text[]);
DROP FUNCTION IF EXISTS shiftboss.unpark(text[]);
DROP FUNCTION IF EXISTS shiftboss.lose_worker(text[], text, text, boolean);
DROP FUNCTION IF EXISTS shiftboss.unheard(text[], uuid[], bigint[]);
DROP FUNCTION IF EXISTS shiftboss.pick_limited(bigint, text, text, int, timestamptz);
DROP FUNCTION IF EXISTS shiftboss.beat_many(text[], jsonb[]);
