CREATE OR REPLACE VIEW shiftboss.ai_cache_status AS
SELECT task_type,
       sum(hits)::bigint AS hits,
       sum(misses)::bigint AS misses,
       sum(errors)::bigint AS errors,
       round(sum(hits)::numeric / nullif(sum(hits) + sum(misses), 0), 4) AS hit_rate
FROM shiftboss.ai_cache_use
WHERE day > shiftboss.ai_today() - 7
GROUP BY task_type;

-- One row per provider that any process of the fleet has configured.
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
    WHERE c.provider = p.provider AND c.started_at > shiftboss.now() - interval '1 minute'
) recent
CROSS JOIN LATERAL (
    SELECT count(*) AS calls FROM shiftboss.ai_calls c
    WHERE c.provider = p.provider AND c.outcome IS NULL AND c.lease_until > shiftboss.now()
) under_way;
