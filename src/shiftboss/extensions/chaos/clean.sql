-- Removes the observer and all data of a run. Events and totals are kept.

DROP SCHEMA IF EXISTS shiftboss_chaos CASCADE;
CREATE TEMP TABLE chaos_gone ON COMMIT DROP AS SELECT id FROM public.tasks WHERE task_type LIKE 'chaos.%';
DELETE FROM public.tasks WHERE id IN (SELECT id FROM chaos_gone);
DELETE FROM shiftboss.past_attempts WHERE task_id IN (SELECT id FROM chaos_gone);
DELETE FROM shiftboss.steps WHERE task_id IN (SELECT id FROM chaos_gone);
DELETE FROM shiftboss.parts WHERE task_id IN (SELECT id FROM chaos_gone);
DELETE FROM shiftboss.task_logs WHERE task_id IN (SELECT id FROM chaos_gone);
DELETE FROM shiftboss.dependencies WHERE child_id IN (SELECT id FROM chaos_gone);
DELETE FROM shiftboss.error_tallies WHERE task_id IN (SELECT id FROM chaos_gone);
DELETE FROM shiftboss.sent_events WHERE key LIKE 'chaos:%';
DELETE FROM shiftboss.lanes WHERE queue = 'chaos';
DELETE FROM shiftboss.limits WHERE name LIKE 'chaos.%';
DELETE FROM shiftboss.pauses WHERE name = 'chaos' OR name LIKE 'chaos.%';
DELETE FROM shiftboss.stats WHERE queue = 'chaos';
DELETE FROM shiftboss.task_schemas WHERE task_type LIKE 'chaos.%';
DELETE FROM shiftboss.worker_samples WHERE worker_id LIKE 'chaos-%';
DELETE FROM public.workers WHERE queues = ARRAY['chaos'];
DELETE FROM public.health WHERE component LIKE '%worker:chaos:%';
