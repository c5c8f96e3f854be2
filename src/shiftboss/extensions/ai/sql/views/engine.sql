CREATE OR REPLACE VIEW shiftboss.ai_cache_status AS
SELECT task_type,
       sum(hits)::bigint AS hits,
       sum(misses)::bigint AS misses,
       sum(errors)::bigint AS errors,
       round(sum(hits)::numeric / nullif(sum(hits) + sum(misses), 0), 4) AS hit_rate
FROM shiftboss.ai_cache_use
WHERE day > shiftboss.ai_today() - 7
GROUP BY task_type;

CREATE OR REPLACE VIEW shiftboss.ai_provider_status AS
SELECT p.provider,
       p.model,
       CASE WHEN p.circuit = 'open' AND p.opened_at + p.recovery <= shiftboss.now()
            THEN 'half-open' ELSE p.circuit END AS circuit,
       p.failures,
       CASE WHEN p.circuit = 'open' THEN p.opened_at + p.recovery END AS reopens_at,
       CASE WHEN p.held_until > shiftboss.now() THEN p.held_until END AS held_until,
       recent.requests AS requests_last_minute,
       p.requests_per_minute,
       recent.tokens AS tokens_last_minute,
       p.tokens_per_minute,
       under_way.calls AS calls_under_way,
       coalesce(today.calls, 0) AS calls_today,
       coalesce(today.errors, 0) AS errors_today,
       coalesce(today.prompt_tokens + today.completion_tokens, 0) AS tokens_today,
       coalesce(today.cost, 0) AS spend_today,
       p.daily_budget,
       p.latency_ms,
       (SELECT round(sum(hits)::numeric / nullif(sum(hits) + sum(misses), 0), 4)
        FROM shiftboss.ai_cache_use u WHERE u.day = shiftboss.ai_today()) AS cache_hit_rate,
       p.last_error,
       p.last_error_at
FROM shiftboss.ai_providers p
LEFT JOIN shiftboss.ai_spend today ON today.provider = p.provider AND today.day = shiftboss.ai_today()
CROSS JOIN LATERAL (
    SELECT count(*) AS requests, coalesce(sum(c.prompt_tokens + c.completion_tokens), 0)::bigint AS tokens
    FROM shiftboss.ai_calls c
    WHERE c.provider = p.provider AND c.started_at > shiftboss.now() - interval '1 minute' AND NOT c.free
) recent
CROSS JOIN LATERAL (
    SELECT count(*) AS calls FROM shiftboss.ai_calls c
    WHERE c.provider = p.provider AND c.outcome IS NULL AND c.lease_until > shiftboss.now()
) under_way;

CREATE OR REPLACE VIEW shiftboss.ai_totals AS
SELECT p.provider,
       CASE WHEN p.circuit = 'open' AND p.opened_at + p.recovery <= shiftboss.now() THEN 'half-open' ELSE p.circuit END AS circuit,
       p.daily_budget, p.last_error,
       coalesce(s.calls, 0) AS calls, coalesce(s.errors, 0) AS errors, coalesce(s.prompt_tokens, 0) AS prompt_tokens,
       coalesce(s.completion_tokens, 0) AS completion_tokens, coalesce(s.cost, 0) AS cost,
       coalesce(s.spend_today, 0) AS spend_today
FROM shiftboss.ai_providers p
LEFT JOIN LATERAL (
    SELECT sum(d.calls)::bigint AS calls, sum(d.errors)::bigint AS errors, sum(d.prompt_tokens)::bigint AS prompt_tokens,
           sum(d.completion_tokens)::bigint AS completion_tokens, sum(d.cost) AS cost,
           sum(d.cost) FILTER (WHERE d.day = shiftboss.ai_today()) AS spend_today
    FROM shiftboss.ai_spend d WHERE d.provider = p.provider
) s ON true;

CREATE OR REPLACE VIEW shiftboss.ai_limit_status AS
SELECT coalesce(l.scope, s.scope) AS scope,
       coalesce(l.name, s.name) AS name,
       coalesce(s.calls, 0) AS calls_today,
       coalesce(s.tokens, 0) AS tokens_today,
       coalesce(s.cost, 0) AS spend_today,
       l.daily_budget,
       l.requests_per_minute,
       l.tokens_per_minute
FROM shiftboss.ai_limits l
FULL JOIN (SELECT * FROM shiftboss.ai_scope_spend WHERE day = shiftboss.ai_today()) s
    ON s.scope = l.scope AND s.name = l.name;

CREATE OR REPLACE VIEW shiftboss.ai_call_log AS
SELECT c.call_id, c.started_at, c.finished_at, c.provider, c.model, c.kind, c.task_type, c.task_id, c.tenant, c.key,
       c.template, c.template_version, c.outcome, c.finish_reason, c.outcome IS NOT DISTINCT FROM 'cached' AS cached,
       c.prompt_tokens, c.completion_tokens, c.cost, c.latency_ms, c.error, t.prompt, t.answer
FROM shiftboss.ai_calls c
LEFT JOIN shiftboss.ai_call_texts t ON t.call_id = c.call_id AND t.expires_at > shiftboss.now();
