-- The comments of our tables and views. The SQL reference has the same texts.
DO $$ BEGIN
    PERFORM shiftboss.describe('public.worker_runs',
        'Tracked runs: one row per run, with status, progress and counters.');
    PERFORM shiftboss.describe('shiftboss.runs', 'Tracked runs, as the API and the dashboard show them.');
END $$;
