"""The SQL that grants each kind of database role the privileges it needs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from psycopg import errors, sql

from shiftboss.db.connection import Connection, connect
from shiftboss.extension import extensions
from shiftboss.model.access import Forbidden
from shiftboss.model.errors import UsageError

ENQUEUED = (
    "id", "task_type", "params", "queue", "priority", "origin", "tenant", "run_at", "deadline", "timeout",
    "dedup_key", "concurrency_key", "max_attempts", "backoff", "backoff_factor", "backoff_max", "depends_on",
    "on_dependency_failure", "requires", "region", "run_id", "metadata", "created_at",
)  # fmt: skip
PUBLIC = ("tasks", "workers", "health")
VIEWS = (
    "orchestrator_status", "active_workers_health", "recent_task_activity", "worker_performance",
    "task_queue_analysis",
)  # fmt: skip
SECRET = ("access_tokens", "login_codes", "audit")
SETTLED = ("settings", "migrations", "access_closed")  # read-only for workers
# Tables that Python and the command line read before they enqueue.
READ_TO_ENQUEUE = ("migrations", "installation", "task_schemas")


class Kind(StrEnum):
    """The purpose of a role, from the fewest privileges to the most."""

    ENQUEUE = "enqueue"
    VIEWER = "viewer"
    WORKER = "worker"
    OPERATOR = "operator"
    OWNER = "owner"


_HERE = """
SELECT current_database() AS name, array_agg(nspname::text) AS schemas, current_user AS me,
    pg_get_userbyid(max(nspowner) FILTER (WHERE nspname = 'shiftboss')) AS owner FROM pg_namespace
"""
_SHARED = """
SELECT has_database_privilege(%(role)s, current_database(), %(database)s)
    AND has_schema_privilege(%(role)s, 'public', %(public)s) AS granted
"""
_WARNINGS = ("01006", "01007")  # PostgreSQL only warns if it revoked or granted nothing


async def grants(url: str, kind: Kind, role: str, *, apply: bool = False) -> str:
    """Return the SQL that grants `role` the privileges of `kind`. With `apply`, also run it."""
    async with connect(url) as conn, conn.transaction():
        row = await (await conn.execute(_HERE)).fetchone()
        if row is None or ("shiftboss" not in row["schemas"] and kind is not Kind.OWNER):
            raise UsageError(
                "this database has no Shiftboss schema yet", hint="run `shiftboss db migrate` first"
            )
        if row["owner"] == role and kind is not Kind.OWNER:
            raise UsageError(
                f"role {role!r} owns the schema: the grants would take privileges away from it",
                hint="it has all privileges; name another role",
            )
        schemas = [name for name in _schemas() if name in row["schemas"]]
        statements = _owner(row["name"]) if kind is Kind.OWNER else _statements(kind, schemas, row["name"])
        text = [statement.format(role=sql.Identifier(role)).as_string(conn) for statement in statements]
        if apply:
            await _require_role(conn, role)
            if not await _applied(conn, text, kind, role):
                owner = row["owner"] or "the owner of the database"
                raise Forbidden(
                    f"role {row['me']!r} may not grant these privileges: nothing was changed",
                    hint=f"run the command as {owner}, or print the SQL without --apply for {owner} to run",
                )
    return "".join(f"{statement};\n" for statement in text)


async def _applied(conn: Connection, statements: list[str], kind: Kind, role: str) -> bool:
    """Run the statements. Returns whether `role` then has the privileges."""
    warnings: list[str | None] = []
    conn.add_notice_handler(lambda diagnostic: warnings.append(diagnostic.sqlstate))
    shared, ours = (
        statements[:2],
        statements[2:],
    )  # PUBLIC may already have those on the database and `public`
    try:
        for statement in shared:
            await conn.execute(statement)
        needs = ("CREATE", "CREATE") if kind is Kind.OWNER else ("CONNECT", "USAGE")
        rights = {"role": role, "database": needs[0], "public": needs[1]}
        row = await (await conn.execute(_SHARED, rights)).fetchone()
        warnings.clear()
        for statement in ours:
            await conn.execute(statement)
    except errors.InsufficientPrivilege:
        return False
    return bool(row and row["granted"]) and not any(state in _WARNINGS for state in warnings)


async def _require_role(conn: Connection, role: str) -> None:
    found = await conn.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
    if await found.fetchone() is None:
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD '…'").format(sql.Identifier(role)).as_string(conn)
        raise UsageError(f"there is no role {role!r}", hint=f"create it first, as a superuser: {create};")


def _schemas() -> list[str]:
    return ["shiftboss", "ai", *(schema for extension in extensions() for schema in extension.schemas)]


def _statements(kind: Kind, schemas: list[str], database: str) -> Iterator[sql.SQL]:
    yield sql.SQL(f"GRANT CONNECT ON DATABASE {_quoted(database)} TO {{role}}")
    yield sql.SQL("GRANT USAGE ON SCHEMA public TO {role}")
    yield sql.SQL("GRANT USAGE ON SCHEMA " + ", ".join(schemas) + " TO {role}")
    if kind is Kind.ENQUEUE:
        yield sql.SQL(f"GRANT INSERT ({', '.join(ENQUEUED)}), SELECT (id) ON public.tasks TO {{role}}")
        yield sql.SQL("GRANT SELECT (status, capabilities) ON public.workers TO {role}")
        yield sql.SQL(f"GRANT SELECT ON {_ours(READ_TO_ENQUEUE)} TO {{role}}")
        yield sql.SQL("GRANT INSERT, SELECT (id) ON shiftboss.audit TO {role}")
    else:
        yield from _tables(kind, schemas)
    if kind is not Kind.VIEWER:
        yield sql.SQL("GRANT EXECUTE ON FUNCTION shiftboss.enqueue(jsonb, int) TO {role}")


def _tables(kind: Kind, schemas: list[str]) -> Iterator[sql.SQL]:
    rights = "SELECT" if kind is Kind.VIEWER else "SELECT, INSERT, UPDATE, DELETE"
    tables = (*PUBLIC, *(table for extension in extensions() for table in extension.tables))
    own, views = (", ".join(f"public.{name}" for name in names) for names in (tables, VIEWS))
    yield sql.SQL(f"GRANT {rights} ON {own} TO {{role}}")
    yield sql.SQL(f"GRANT SELECT ON {views} TO {{role}}")
    for schema in schemas:
        yield sql.SQL(f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {{role}}")
        if kind is not Kind.VIEWER:
            yield sql.SQL(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {{role}}")
    if kind is not Kind.OPERATOR:
        yield sql.SQL(f"REVOKE ALL ON {_ours(SECRET)} FROM {{role}}")
    if kind is Kind.WORKER:
        yield sql.SQL(f"REVOKE INSERT, UPDATE, DELETE ON {_ours(SETTLED)} FROM {{role}}")
    if kind is Kind.OPERATOR:
        yield sql.SQL("REVOKE INSERT, UPDATE, DELETE ON shiftboss.migrations FROM {role}")
        yield sql.SQL("REVOKE UPDATE, DELETE ON shiftboss.audit FROM {role}")


def _ours(names: tuple[str, ...]) -> str:
    return ", ".join(f"shiftboss.{name}" for name in names)


def _owner(database: str) -> Iterator[sql.SQL]:
    """Yield the grants to migrate a database of another owner. Existing objects keep their owner."""
    yield sql.SQL(f"GRANT CONNECT, CREATE, TEMPORARY ON DATABASE {_quoted(database)} TO {{role}}")
    yield sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {role}")


def _quoted(database: str) -> str:
    return '"' + database.replace('"', '""').replace("{", "{{").replace("}", "}}") + '"'
