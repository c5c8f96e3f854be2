-- The comments of our tables and views. The SQL reference has the same texts.
DO $$ BEGIN
    PERFORM shiftboss.describe('public.tasks',
        'The queue: one row per task. Any client may insert rows and read them; change them with the functions '
        'only. See the view shiftboss.task_list for plainer column names.');
    PERFORM shiftboss.describe('public.workers',
        'The registry: one row per worker that may be given tasks, with its last heartbeat and what it can do.');
    PERFORM shiftboss.describe('public.health',
        'One row per supervised slot, worker:<queue>:<n>: its process, status and restarts. Times are Unix seconds.');
    PERFORM shiftboss.describe('shiftboss.access_closed',
        'One row as soon as the first access token has been created: authentication then stays on.');
    PERFORM shiftboss.describe('shiftboss.access_tokens', 'Access tokens and login sessions, as SHA-256 hashes.');
    PERFORM shiftboss.describe('shiftboss.advice',
        'Advice of extensions for shiftboss.why: a regular expression for the reason, and its replacement.');
    PERFORM shiftboss.describe('shiftboss.alert_deliveries',
        'Notifications about alerts that are to be sent or were sent. Targets are stored as hashes.');
    PERFORM shiftboss.describe('shiftboss.alerts',
        'Alerts: one row from the time a rule finds a problem until the problem has ended.');
    PERFORM shiftboss.describe('shiftboss.audit',
        'The audit log: who changed what through the command line, the HTTP API or the dashboard.');
    PERFORM shiftboss.describe('shiftboss.autoscale',
        'Settings of the autoscaler, by queue. Missing keys have the defaults of the settings reference.');
    PERFORM shiftboss.describe('shiftboss.counter_tallies', 'Increments that are not yet added to shiftboss.counters.');
    PERFORM shiftboss.describe('shiftboss.counters', 'Counters of the whole fleet, for metrics.');
    PERFORM shiftboss.describe('shiftboss.dependencies', 'Which tasks depend on which: one row per parent and child.');
    PERFORM shiftboss.describe('shiftboss.error_groups',
        'Failed attempts, grouped by type, place and message of the error.');
    PERFORM shiftboss.describe('shiftboss.error_tallies', 'Failures that are not yet added to shiftboss.error_groups.');
    PERFORM shiftboss.describe('shiftboss.events',
        'Events of the fleet, such as elections of a leader and lost workers.');
    PERFORM shiftboss.describe('shiftboss.installation',
        'The identity of this fleet, and the server and database in which it was created; see shiftboss.adopt.');
    PERFORM shiftboss.describe('shiftboss.lanes',
        'Lanes: combinations of queue, task type, priority, tenant and requirements. May contain duplicates.');
    PERFORM shiftboss.describe('shiftboss.leases',
        'Leases with random tokens, for what only one process may do at a time: lead the fleet, supervise a host.');
    PERFORM shiftboss.describe('shiftboss.limits',
        'Limits and rates of queues and task types, set by operators or in code.');
    PERFORM shiftboss.describe('shiftboss.login_codes', 'Login links that work once, as hashes.');
    PERFORM shiftboss.describe('shiftboss.migrations',
        'The migrations that were applied to this database, with their checksums.');
    PERFORM shiftboss.describe('shiftboss.parts',
        'What tasks emit while they run, in order, for readers that follow them.');
    PERFORM shiftboss.describe('shiftboss.past_attempts',
        'Attempts that did not succeed. The view shiftboss.attempts also shows the others.');
    PERFORM shiftboss.describe('shiftboss.pauses', 'Paused queues and task types.');
    PERFORM shiftboss.describe('shiftboss.queue_counts',
        'Waiting tasks by queue. The leader counts them if there are too many to count for each request.');
    PERFORM shiftboss.describe('shiftboss.rate_buckets',
        'The state of rates that apply per concurrency key or per tenant.');
    PERFORM shiftboss.describe('shiftboss.schedules', 'Schedules: a cron expression and the task that it enqueues.');
    PERFORM shiftboss.describe('shiftboss.sent_events',
        'Events sent with shiftboss.send_event, kept for tasks that wait for them later.');
    PERFORM shiftboss.describe('shiftboss.settings',
        'Settings of this database, such as stale_after, stuck_after and notify.');
    PERFORM shiftboss.describe('shiftboss.slot_totals',
        'Restarts and crashes by queue. Rows stay when slots are removed, so that the counters never decrease.');
    PERFORM shiftboss.describe('shiftboss.stats', 'Finished work by minute, worker and task type.');
    PERFORM shiftboss.describe('shiftboss.stats_slots',
        'Finished work by 20 minutes and task type, for charts over days.');
    PERFORM shiftboss.describe('shiftboss.steps',
        'Durable steps of tasks: one row per step, sleep, awaited event, question or child task.');
    PERFORM shiftboss.describe('shiftboss.supervisors', 'Supervisors, by host, with the slots that they should keep.');
    PERFORM shiftboss.describe('shiftboss.tallies',
        'Changes that are not yet added to task_totals, worker_totals and type_totals.');
    PERFORM shiftboss.describe('shiftboss.task_logs', 'What handlers log, by task, attempt and step.');
    PERFORM shiftboss.describe('shiftboss.task_schemas',
        'The JSON Schema of each task type''s arguments, as workers publish it.');
    PERFORM shiftboss.describe('shiftboss.task_totals',
        'Finished tasks by status, for views that must not read the history.');
    PERFORM shiftboss.describe('shiftboss.tenants', 'Weights of tenants that differ from the default, 1.');
    PERFORM shiftboss.describe('shiftboss.ticks',
        'Times at which schedules fired. The key ensures that each fires once.');
    PERFORM shiftboss.describe('shiftboss.type_totals', 'Finished tasks by six hours and task type.');
    PERFORM shiftboss.describe('shiftboss.unique_keys',
        'Dedup keys that stay reserved for a period, even if their task ends earlier.');
    PERFORM shiftboss.describe('shiftboss.unusable',
        'Rows of an older tasks table that no worker can run; see the view shiftboss.unusable_tasks.');
    PERFORM shiftboss.describe('shiftboss.work_totals', 'Work of each worker by task type, for metrics.');
    PERFORM shiftboss.describe('shiftboss.worker_samples',
        'Memory, CPU and running tasks of workers in the last half hour.');
    PERFORM shiftboss.describe('shiftboss.worker_totals', 'Finished tasks by six hours and worker.');
    PERFORM shiftboss.describe('public.orchestrator_status', 'The fleet in one row: tasks and workers by status.');
    PERFORM shiftboss.describe('public.active_workers_health',
        'One row per worker, with its last heartbeat, its longest-running task and its health: HEALTHY, '
        'STALE_HEARTBEAT, STUCK_TASK, NO_HEARTBEAT, INACTIVE or TERMINATED.');
    PERFORM shiftboss.describe('public.recent_task_activity',
        'Tasks that were created, started or finished in the last 24 hours, and all that are running.');
    PERFORM shiftboss.describe('public.worker_performance',
        'Completed and failed attempts of each worker in the last seven days (rounded up to six hours), with '
        'success rate and average duration. A failed attempt counts even if another worker completed the task '
        'later.');
    PERFORM shiftboss.describe('public.task_queue_analysis',
        'One row per task type: waiting tasks and their ages, and durations and error rate of the last seven days.');
    PERFORM shiftboss.describe('shiftboss.approvals', 'Open questions of tasks to people.');
    PERFORM shiftboss.describe('shiftboss.attempts',
        'Every attempt of every task. Unsuccessful attempts have their own table; running and successful ones are '
        'derived from the task, so that a success needs no second row.');
    PERFORM shiftboss.describe('shiftboss.finished_totals', 'Finished tasks that are still in the table, by status.');
    PERFORM shiftboss.describe('shiftboss.errors',
        'All error groups, including at most 20,000 failures that are not yet added to shiftboss.error_groups.');
    PERFORM shiftboss.describe('shiftboss.health_alerts', 'Slots that need attention, with the reason.');
    PERFORM shiftboss.describe('shiftboss.health_metrics',
        'Crashes and restarts of all slots in one row, and slots by status.');
    PERFORM shiftboss.describe('shiftboss.members',
        'One row per worker, as in active_workers_health, with its queues, capabilities, host and version.');
    PERFORM shiftboss.describe('shiftboss.queues',
        'One row per queue: waiting and running tasks, age of the oldest, limits, pauses and workers.');
    PERFORM shiftboss.describe('shiftboss.slots', 'Supervised slots: status, process, host and restarts.');
    PERFORM shiftboss.describe('shiftboss.task_list', 'Tasks under plain column names, for manual queries.');
    PERFORM shiftboss.describe('shiftboss.task_types', 'One row per task type: its queues, limits and pauses.');
    PERFORM shiftboss.describe('shiftboss.unusable_tasks',
        'Rows of tasks from before Shiftboss that no worker can run, with the reason.');
    PERFORM shiftboss.describe('shiftboss.worker_health',
        'One row per worker, with its figures for today (UTC). Degraded: its heartbeat is late, or most of its '
        'tasks in the last ten minutes failed. Unhealthy: it gets no tasks. goroutine_count: asyncio tasks and '
        'threads of its process.');
END $$;
