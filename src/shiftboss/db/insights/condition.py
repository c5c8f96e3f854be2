"""The state of the database, for `shiftboss doctor`."""

from __future__ import annotations

import time
from collections import defaultdict

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.db.insights.rows import ServerState
from shiftboss.db.sqlfiles import all_trees
from shiftboss.extension import extensions

# A role without pg_read_all_stats sees only the database and the user of other roles' sessions.
_SERVER = """SELECT current_setting('server_version') AS version,
    current_setting('fsync')::boolean AS fsync, current_setting('autovacuum')::boolean AS autovacuum,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('max_connections')::int AS max_connections,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL
        AND coalesce(backend_type, 'client backend') = 'client backend') AS connections,
    current_user AS role, pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') AS sees_sessions,
    pg_catalog.pg_is_in_recovery() AS standby,
    (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector') AS vector,
    EXISTS (SELECT FROM pg_catalog.pg_available_extensions WHERE name = 'vector') AS vector_available,
    pg_catalog.pg_database_size(current_database()) AS bytes"""
_OLD = """SELECT pid, usename, application_name, state,
        extract(epoch FROM clock_timestamp() - xact_start)::double precision AS seconds
    FROM pg_catalog.pg_stat_activity
    WHERE xact_start < clock_timestamp() - make_interval(secs => %s) AND pid <> pg_catalog.pg_backend_pid()
      AND backend_type = 'client backend' ORDER BY xact_start LIMIT 10"""
_DEAD = """SELECT schemaname || '.' || relname AS name, n_live_tup AS live, n_dead_tup AS dead
    FROM pg_catalog.pg_stat_user_tables
    WHERE schemaname = ANY (%s)
      AND n_dead_tup > 10000 AND n_dead_tup > n_live_tup
    ORDER BY n_dead_tup DESC LIMIT 10"""
# Waiting tasks by queue and type that no active worker serves. The LIMIT bounds the count of each lane.
_UNDONE = """SELECT l.queue, l.task_type, count(*) AS tasks, min(t.id::text) AS example
    FROM shiftboss.every_lane() l CROSS JOIN LATERAL (
        SELECT t.id FROM public.tasks t WHERE t.status = 'Queued' AND t.hold IS NULL
            AND shiftboss.lane_of(t.queue, t.task_type, t.priority, t.tenant, t.requires) = l.lane
        LIMIT 1000) t
    WHERE NOT EXISTS (SELECT FROM public.workers w WHERE w.status = 'active'
        AND (w.queues IS NULL OR l.queue = ANY (w.queues))
        AND (w.capabilities -> 'task_types' IS NULL OR w.capabilities -> 'task_types' ? l.task_type))
    GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 50"""

# The documented indexes. A database that had an index of that name before the first migration kept it.
INDEXES = {
    "idx_tasks_status_worker": ("public.tasks", ["status", "worker_id"]),
    "idx_tasks_queued_created": ("public.tasks", ["created_at"]),
    "idx_tasks_running_started": ("public.tasks", ["generation_started_at"]),
    "idx_workers_status_heartbeat": ("public.workers", ["status", "last_heartbeat"]),
    "idx_tasks_claim_optimization": ("public.tasks", ["status", "created_at"]),
}
# The key columns of each index, in order.
_COLUMNS = """SELECT c.relname AS name, i.indrelid::regclass::text AS on_table,
        ARRAY(SELECT coalesce(a.attname::text, 'an expression')
              FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (number, n)
              LEFT JOIN pg_catalog.pg_attribute a
                  ON a.attrelid = i.indrelid AND a.attnum = k.number AND k.number > 0
              WHERE k.n <= i.indnkeyatts ORDER BY k.n) AS columns
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relname = ANY (%s)"""

# The columns of each table that can have encrypted values.
_TEXTS = """
SELECT c.oid::regclass::text AS table, string_agg(format('%%I', a.attname), ', ') AS columns
FROM unnest(%s::text[]) w (name)
JOIN pg_catalog.pg_class c ON c.oid = to_regclass(w.name) AND has_table_privilege(c.oid, 'SELECT')
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.atttypid IN ('text'::regtype, 'jsonb'::regtype)
GROUP BY c.oid ORDER BY 1
"""
# A value may contain others: params contain the results of parent tasks.
_NAMES = r"""
SELECT n[1] AS name, count(*) AS values FROM (SELECT concat_ws(' ', {columns}) AS texts FROM {table}) t
CROSS JOIN LATERAL regexp_matches(t.texts, '\$enc(?::|": ?")([0-9a-f]{{8}}):', 'g') n
WHERE t.texts LIKE '%$enc%' GROUP BY 1
"""


class Condition(Family):
    async def server(self) -> ServerState:
        """Return the server's version, relevant settings, connections, pgvector version and database size."""
        return (await self._db.fetch_as(ServerState, _SERVER))[0]

    async def strange_indexes(self) -> list[Row]:
        """Return documented indexes that are missing (`columns` is None) or have other columns."""
        rows = await self._db.fetch(_COLUMNS, [list(INDEXES)])
        there = {row["name"]: row["columns"] for row in rows}
        return [
            {"name": name, "table": table, "wanted": wanted, "columns": there.get(name)}
            for name, (table, wanted) in INDEXES.items()
            if there.get(name) != wanted
        ]

    async def clock_difference(self) -> float:
        """Return the seconds by which the database's clock is ahead, or 0 if within the round-trip time."""
        before = time.time()
        now = await self._db.value(float, "SELECT extract(epoch FROM clock_timestamp())::double precision")
        after = time.time()
        ahead = now - (before + after) / 2
        return ahead if abs(ahead) > after - before else 0.0

    async def old_transactions(self, seconds: float = 300.0) -> list[Row]:
        """Return transactions that have been open for this long and block VACUUM."""
        return await self._db.fetch(_OLD, [seconds])

    async def bloat(self) -> list[Row]:
        """Return our tables that have more dead rows than live ones."""
        ours = [schema for extension in extensions() for schema in extension.schemas]
        return await self._db.fetch(_DEAD, [["public", "shiftboss", "ai", *ours]])

    async def unusable(self, limit: int = 10) -> tuple[int, list[Row]]:
        """Return the number of rows of an older `tasks` table that no worker can run, and the first ones."""
        rows = await self._db.fetch(
            "SELECT *, count(*) OVER () AS n FROM shiftboss.unusable_tasks LIMIT %s", [limit]
        )
        return (rows[0]["n"] if rows else 0), rows

    async def undone(self) -> list[Row]:
        """Return waiting task types that no active worker serves. Counts at most 1000 tasks per lane."""
        return await self._db.fetch(_UNDONE)

    async def keys(self) -> dict[str, dict[str, int]]:
        """Return how many stored values of each table need each encryption key, by key name."""
        tables = {name for tree in all_trees() for file in tree.migrations for name in file.tables}
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for row in await self._db.fetch(_TEXTS, [sorted(tables)]):
            for key in await self._db.fetch(_NAMES.format(**row)):
                found[key["name"]][row["table"]] = key["values"]
        return found
