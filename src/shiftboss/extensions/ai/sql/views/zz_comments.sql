-- The comments of our tables and views. The SQL reference has the same texts.
DO $$ BEGIN
    PERFORM shiftboss.describe('shiftboss.ai_cache',
        'Cached answers of AI providers. Unlogged: a crash of the server empties it.');
    PERFORM shiftboss.describe('shiftboss.ai_cache_use', 'Hits, misses and errors of the cache, by day and task type.');
    PERFORM shiftboss.describe('shiftboss.ai_call_texts',
        'Prompts and answers of recorded AI calls. They expire before the calls do.');
    PERFORM shiftboss.describe('shiftboss.ai_calls',
        'AI calls with tokens, cost and outcome; see the view shiftboss.ai_call_log.');
    PERFORM shiftboss.describe('shiftboss.ai_limits',
        'Budgets and rates of tenants, task types and keys. The name * is the limit of each one without its own '
        'row.');
    PERFORM shiftboss.describe('shiftboss.ai_providers',
        'The state of each AI provider: circuit breaker, limits and last error.');
    PERFORM shiftboss.describe('shiftboss.ai_scope_spend',
        'Calls, tokens and cost by day, for each tenant, task type and key.');
    PERFORM shiftboss.describe('shiftboss.ai_spend', 'Calls, tokens and cost by day and provider.');
    PERFORM shiftboss.describe('shiftboss.ai_cache_status',
        'Use of the cache in the last seven days, by task type: hits, misses, errors and hit rate.');
    PERFORM shiftboss.describe('shiftboss.ai_call_log',
        'All AI calls, with prompt and answer if they were recorded. Cached answers cost nothing.');
    PERFORM shiftboss.describe('shiftboss.ai_limit_status',
        'One row per tenant, task type and key that has a limit or has made calls today.');
    PERFORM shiftboss.describe('shiftboss.ai_provider_status',
        'One row per provider that any process of the fleet has configured: circuit, use of its limits, spend today '
        'and last error.');
    PERFORM shiftboss.describe('shiftboss.ai_totals', 'Totals of each provider over all days, for metrics.');
END $$;
