-- The tables for the checks, created at the end of a run.
CREATE INDEX changes_task ON shiftboss_chaos.changes (task, seq);
CREATE TABLE shiftboss_chaos.claims AS SELECT seq, at, task, new_lease AS lease FROM shiftboss_chaos.changes
    WHERE after = 'In Progress' AND before IS NOT NULL AND old_lease IS DISTINCT FROM new_lease;
CREATE INDEX claims_lease ON shiftboss_chaos.claims (lease);
CREATE INDEX claims_task ON shiftboss_chaos.claims (task);
CREATE INDEX ledger_lease ON shiftboss_chaos.ledger (lease);
CREATE TABLE shiftboss_chaos.ours AS SELECT t.* FROM public.tasks t WHERE t.task_type LIKE 'chaos.%';
CREATE UNIQUE INDEX ours_id ON shiftboss_chaos.ours (id);
ANALYZE shiftboss_chaos.changes, shiftboss_chaos.claims, shiftboss_chaos.ledger, shiftboss_chaos.ours;
