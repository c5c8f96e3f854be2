CREATE OR REPLACE VIEW ai.vectorizer_status AS
SELECT v.id, v.name, v.source_table, v.target_table, v.target_view, v.provider, v.model, v.dimensions,
       CASE WHEN v.detached IS NOT NULL THEN 'detached'
            WHEN NOT EXISTS (SELECT FROM pg_class WHERE oid = v.source_table) THEN 'source dropped'
            WHEN NOT EXISTS (SELECT FROM pg_class WHERE oid = v.target_table) THEN 'target dropped'
            WHEN t.trouble IS NOT NULL THEN 'column dropped'
            WHEN v.paused THEN 'paused'
            WHEN v.deferred_until > shiftboss.now() THEN 'deferred'
            WHEN r.id IS NOT NULL THEN 'updating'
            WHEN q.pending > 0 THEN 'working'
            ELSE 'idle' END AS state,
       q.pending,
       coalesce(e.retrying, 0) AS retrying,
       coalesce(e.failed, 0) AS failed,
       w.rows_per_second,
       CASE WHEN q.pending + coalesce(u.pending, 0) = 0 THEN interval '0'
            WHEN w.rows_per_second > 0
            THEN make_interval(secs => round((q.pending + coalesce(u.pending, 0)) / w.rows_per_second)) END AS time_left,
       u.pending AS update_pending,
       v.deferred_until,
       CASE WHEN v.deferred_until > shiftboss.now() THEN v.defer_reason END AS defer_reason,
       p.success_count, p.error_count, p.last_success_at, p.last_error_at, p.last_error_message,
       t.trouble,
       ai._index_state(coalesce(r, v)) AS index_state
FROM ai.vectorizer v
LEFT JOIN ai.vectorizer r ON r.replaces = v.id
CROSS JOIN LATERAL (SELECT ai._pending(v) AS pending) q
CROSS JOIN LATERAL (SELECT ai._trouble(v) AS trouble) t
LEFT JOIN LATERAL (SELECT ai._pending(r) AS pending WHERE r.id IS NOT NULL) u ON true
LEFT JOIN LATERAL (SELECT count(*) FILTER (WHERE NOT x.final) AS retrying, count(*) FILTER (WHERE x.final) AS failed
                   FROM ai._vectorizer_error x WHERE x.vectorizer_id IN (v.id, r.id)) e ON true
LEFT JOIN LATERAL (
    SELECT (sum(m.row_count) / greatest(extract(epoch FROM shiftboss.now() - min(m.first_at)), 1))::numeric(12, 1) AS rows_per_second
    FROM ai._vectorizer_minute m
    WHERE m.vectorizer_id IN (v.id, r.id) AND m.minute > shiftboss.now() - interval '5 minutes') w ON true
LEFT JOIN ai.vectorizer_worker_progress p ON p.vectorizer_id = v.id
WHERE v.replaces IS NULL;

CREATE OR REPLACE VIEW ai.vectorizer_errors AS
SELECT coalesce(v.replaces, v.id) AS vectorizer_id, o.name, v.source_table, e.key, e.step, e.reason, e.attempts,
       CASE WHEN e.final THEN 'failed' ELSE 'retrying' END AS state, e.failed_at
FROM ai._vectorizer_error e
JOIN ai.vectorizer v ON v.id = e.vectorizer_id
JOIN ai.vectorizer o ON o.id = coalesce(v.replaces, v.id);
