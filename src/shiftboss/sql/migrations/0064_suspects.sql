-- Functions that return a column more now: how often the task was in hand when a worker crashed.
DROP FUNCTION IF EXISTS shiftboss.take(uuid[], text, interval);
DROP FUNCTION IF EXISTS shiftboss.claim(text, int, bigint[], timestamptz[], interval);
DROP FUNCTION IF EXISTS shiftboss.claim(text, int, bigint[], timestamptz[], interval, uuid);
DROP FUNCTION IF EXISTS shiftboss.assign(uuid[], text, interval);
