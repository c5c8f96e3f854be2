"""Each kind of role with a real login: what it needs works, everything else is refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.migrate import is_current, migrate
from shiftboss.db.roles import Kind, grants
from shiftboss.model.access import Forbidden, Principal, Role
from shiftboss.model.errors import DatabaseError, MigrationError, UsageError
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from shiftboss.operations import Operations
from tests.conftest import as_superuser

ME = Principal("me", Role.ADMIN)
REFUSED = psycopg.errors.InsufficientPrivilege


async def given(database_url: str, login: str, kind: Kind) -> psycopg.Connection[Any]:
    role = urlsplit(login).username
    assert role is not None
    for _ in range(2):  # safe to repeat
        await grants(database_url, kind, role, apply=True)
    return psycopg.connect(login, autocommit=True)


def refuse(conn: psycopg.Connection[Any], *statements: str) -> None:
    for statement in statements:
        with pytest.raises(REFUSED):
            conn.execute(statement)  # type: ignore[arg-type]


OWNERS_ONLY = ("DROP TABLE public.tasks", "CREATE TABLE shiftboss.mine (n int)", "TRUNCATE public.tasks")
SECRETS = ("SELECT * FROM shiftboss.access_tokens", "SELECT * FROM shiftboss.login_codes")


async def test_an_application_enqueues_and_nothing_else(database_url: str, login: str) -> None:
    with await given(database_url, login, Kind.ENQUEUE) as conn:
        conn.execute("INSERT INTO public.tasks (task_type, params) VALUES ('plain', '{}') RETURNING id")
        one = """SELECT id FROM shiftboss.enqueue('[{"task_type": "a", "dedup_key": "k", "origin": "user_requested"}]')"""
        first = conn.execute(one).fetchone()
        assert conn.execute(one).fetchone() == first
        assert first is not None
        conn.execute("INSERT INTO public.tasks (task_type, depends_on) VALUES ('child', ARRAY[%s])", first)
        refuse(
            conn,
            *OWNERS_ONLY,
            *SECRETS,
            "SELECT params FROM public.tasks",
            "UPDATE public.tasks SET priority = 1",
            "DELETE FROM public.tasks",
            "INSERT INTO public.tasks (task_type, status) VALUES ('a', 'Complete')",
            "SELECT * FROM shiftboss.claim('w', 1)",
            "SELECT * FROM shiftboss.lanes",
            "SELECT * FROM public.workers",
        )
    with psycopg.connect(database_url) as owner:
        claimed = owner.execute("SELECT task_type FROM shiftboss.claim('w', 10)").fetchall()
    assert sorted(name for (name,) in claimed) == ["a", "plain"]


async def test_an_application_enqueues_from_python_and_by_operations(database_url: str, login: str) -> None:
    (await given(database_url, login, Kind.ENQUEUE)).close()
    async with await Database.open(login) as db:
        (made,) = await db.tasks.enqueue([NewTask(task_type="a")])
        other = await Operations(db, Settings.load()).enqueue(ME, NewTask(task_type="b"))
        assert "no worker serves" in (other.warning or "")
        with pytest.raises(DatabaseError, match="permission denied"):
            await Operations(db, Settings.load()).pause_queue(ME, "default")
    with psycopg.connect(database_url) as owner:
        assert (
            len(owner.execute("SELECT FROM tasks WHERE id = ANY (%s)", [[made.id, other.id]]).fetchall()) == 2
        )
        assert owner.execute("SELECT action, outcome FROM shiftboss.audit ORDER BY id").fetchall() == [
            ("task.enqueue", "done"),
            ("queue.pause", "failed"),
        ]


async def test_a_role_that_cannot_be_audited_changes_nothing(database_url: str, login: str) -> None:
    (await given(database_url, login, Kind.WORKER)).close()
    async with await Database.open(login) as db:
        operations = Operations(db, Settings.load())
        with pytest.raises(Forbidden, match="cannot write the audit log"):
            await operations.enqueue(ME, NewTask(task_type="a"))
        with pytest.raises(Forbidden, match="cannot write the audit log"):
            await operations.pause_queue(ME, "default")
        assert await db.fetch("SELECT FROM tasks") == []


async def test_a_viewer_sees_and_changes_nothing(database_url: str, login: str) -> None:
    with await given(database_url, login, Kind.VIEWER) as conn:
        for view in ("tasks", "orchestrator_status", "task_queue_analysis", "health"):
            conn.execute(f"SELECT * FROM public.{view}")
        conn.execute("SELECT * FROM shiftboss.queues_within(10)")
        refuse(
            conn,
            *OWNERS_ONLY,
            *SECRETS,
            "INSERT INTO public.tasks (task_type) VALUES ('a')",
            "SELECT * FROM shiftboss.enqueue('[]')",
            "SELECT * FROM shiftboss.claim('w', 1)",
            "SELECT shiftboss.set_limit('queue', 'default', 1)",
            "UPDATE shiftboss.settings SET value = '1'",
        )


async def test_a_worker_works_and_does_not_administer(database_url: str, login: str) -> None:
    with await given(database_url, login, Kind.WORKER) as conn:
        refuse(conn, *OWNERS_ONLY, *SECRETS, "INSERT INTO shiftboss.settings VALUES ('stuck_after', '1 day')")
    async with await Database.open(login) as db:
        parent = (await db.tasks.enqueue([NewTask(task_type="a"), NewTask(task_type="a", dedup_key="k")]))[0]
        await db.tasks.enqueue([NewTask(task_type="b", depends_on=[parent.id])])
        await db.workers.register(Member(id="w"))
        await db.health.register_worker("worker:default:1", 1)
        await db.health.update_heartbeat("worker:default:1")
        held = await db.tasks.claim("w", 10)
        assert len(held) == 2
        await db.fetch("SELECT * FROM shiftboss.beat('w', %s)", [[task.lease for task in held]])
        ids, leases = [task.id for task in held], [task.lease for task in held]
        await db.fetch("SELECT shiftboss.complete(%s, %s, ARRAY[NULL]::jsonb[])", [ids[:1], leases[:1]])
        await db.fetch("SELECT shiftboss.fail(%s, %s, '{no}')", [ids[1:], leases[1:]])
        await db.workers.rescue()
        await db.fetch("SELECT shiftboss.expire(10), shiftboss.prune('1 day', 10), shiftboss.tidy()")
        await db.fetch("SELECT * FROM shiftboss.leave('w')")


TABLES = """
SELECT n.nspname || '.' || c.relname AS name, c.relkind IN ('v', 'm') AS view,
    array(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p
          WHERE has_table_privilege(%s, c.oid, p)) AS rights,
    EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'hash') AS secret
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm') AND n.nspname IN ('public', 'shiftboss', 'ai', 'journal')
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
"""
ALL = {"SELECT", "INSERT", "UPDATE", "DELETE"}
#: What each kind may do with a table as a whole, unless the table is named below.
RIGHTS: dict[Kind | None, set[str]] = {
    None: set(), Kind.ENQUEUE: set(), Kind.VIEWER: {"SELECT"}, Kind.WORKER: ALL, Kind.OPERATOR: ALL,
}  # fmt: skip
NAMED: dict[Kind | None, dict[str, set[str]]] = {
    Kind.ENQUEUE: {
        "shiftboss.migrations": {"SELECT"}, "shiftboss.installation": {"SELECT"},
        "shiftboss.task_schemas": {"SELECT"}, "shiftboss.audit": {"INSERT"},
    },
    Kind.VIEWER: {name: set() for name in ("shiftboss.access_tokens", "shiftboss.login_codes", "shiftboss.audit")},
    Kind.WORKER: {name: set() for name in ("shiftboss.access_tokens", "shiftboss.login_codes", "shiftboss.audit")}
    | {name: {"SELECT"} for name in ("shiftboss.settings", "shiftboss.migrations", "shiftboss.access_closed")},
    Kind.OPERATOR: {"shiftboss.migrations": {"SELECT"}, "shiftboss.audit": {"SELECT", "INSERT"}},
}  # fmt: skip


@pytest.mark.parametrize("kind", RIGHTS, ids=str)
async def test_the_privileges_on_every_table(database_url: str, login: str, kind: Kind | None) -> None:
    """The tables come from the catalogue, so that a new one is covered when it is added."""
    if kind is not None:
        (await given(database_url, login, kind)).close()
    with psycopg.connect(as_superuser(database_url)) as conn:
        rows = conn.execute(TABLES, [urlsplit(login).username]).fetchall()
    assert len(rows) > 90
    for name, view, rights, secret in rows:
        allowed = NAMED.get(kind, {}).get(name, RIGHTS[kind])
        assert set(rights) <= allowed, (kind, name, rights)
        assert view or set(rights) == allowed, (kind, name, rights)
        assert not (secret and rights) or kind is Kind.OPERATOR, (kind, name)


DEFINERS = """
SELECT p.proname, p.prorettype = 'trigger'::regtype AS fires, array_to_string(p.proconfig, ' ') AS settings
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.prosecdef AND n.nspname IN ('public', 'shiftboss', 'ai', 'journal')
"""


def test_functions_with_the_owners_rights_are_few_and_cannot_be_fooled(database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        rows = conn.execute(DEFINERS).fetchall()
    callable_ones = {name for name, fires, _ in rows if not fires}
    assert callable_ones == {"somebody_sleeps", "ring", "arm", "hear", "disarm", "enqueue"}
    assert [
        name for name, _, settings in rows if "search_path=pg_catalog, pg_temp" not in (settings or "")
    ] == []


async def test_an_operator_steers_and_does_not_change_the_schema(database_url: str, login: str) -> None:
    with await given(database_url, login, Kind.OPERATOR) as conn:
        conn.execute("SELECT shiftboss.set_limit('queue', 'default', 1)")
        conn.execute("SELECT shiftboss.set_payload_limit(1000)")
        conn.execute("SELECT * FROM shiftboss.access_tokens")
        conn.execute("INSERT INTO public.tasks (task_type) VALUES ('a')")
        conn.execute("SELECT * FROM shiftboss.cancel(ARRAY(SELECT id FROM public.tasks))")
        conn.execute(
            "INSERT INTO shiftboss.audit (actor, role, action, outcome) VALUES ('a', 'admin', 'b', 'done')"
        )
        refuse(
            conn,
            *OWNERS_ONLY,
            "DELETE FROM shiftboss.audit",
            "UPDATE shiftboss.audit SET actor = 'somebody'",
            "UPDATE shiftboss.migrations SET checksum = ''",
        )
        with pytest.raises(
            psycopg.errors.ProgramLimitExceeded
        ):  # the trigger follows, though it is the owner's
            conn.execute(
                "INSERT INTO public.tasks (task_type, params) SELECT 'a', to_jsonb(repeat(md5('x'), 1000))"
            )


async def test_a_role_that_may_only_create_can_migrate(bare_database_url: str) -> None:
    """It owns neither the database nor its schema public; what is missing is named with the GRANT that helps."""
    name = "migrator_" + bare_database_url.rpartition("_")[2]
    with psycopg.connect(as_superuser(bare_database_url), autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'ordinary'")
        try:
            parts = urlsplit(bare_database_url)
            url = parts._replace(netloc=f"{name}:ordinary@{parts.netloc.rpartition('@')[2]}").geturl()
            with pytest.raises(MigrationError) as caught:
                await migrate(url)
            assert f'GRANT CREATE ON DATABASE "{parts.path[1:]}" TO "{name}"' in (caught.value.hint or "")
            conn.execute(f"GRANT CREATE ON DATABASE {parts.path[1:]} TO {name}")
            if conn.info.server_version >= 150000:
                with pytest.raises(MigrationError) as caught:
                    await migrate(url)
                assert f'GRANT USAGE, CREATE ON SCHEMA public TO "{name}"' in (caught.value.hint or "")
            await grants(as_superuser(bare_database_url), Kind.OWNER, name, apply=True)
            await migrate(url)
            assert await is_current(url)
            async with await Database.open(url) as db:
                await db.tasks.enqueue([NewTask(task_type="a")])
                assert len(await db.tasks.claim("w")) == 1
        finally:
            conn.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_role_without_rights_is_told_what_is_missing(login: str) -> None:
    async with await Database.open(login) as db:
        with pytest.raises(DatabaseError, match="permission denied") as caught:
            await db.tasks.claim("w")
    assert "`shiftboss db roles KIND ROLE --apply`" in (caught.value.hint or "")


async def test_a_missing_role_is_told_how_to_make_it(database_url: str) -> None:
    with pytest.raises(UsageError, match="there is no role 'nobody'") as caught:
        await grants(database_url, Kind.WORKER, "nobody", apply=True)
    assert 'CREATE ROLE "nobody" LOGIN' in str(caught.value.hint)


async def test_a_role_that_may_not_grant_is_refused(database_url: str, login: str) -> None:
    """PostgreSQL only warns about a GRANT that grants nothing."""
    name, other = urlsplit(login).username, urlsplit(login).username + "_2"
    (await given(database_url, login, Kind.OPERATOR)).close()
    with psycopg.connect(as_superuser(database_url), autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {other}")
        try:
            for kind in Kind:
                with pytest.raises(Forbidden, match=f"role '{name}' may not grant these privileges"):
                    await grants(login, kind, other, apply=True)
        finally:
            conn.execute(f"DROP ROLE {other}")  # fails if it was granted anything


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.OWNER])
async def test_the_owner_keeps_its_privileges(database_url: str, kind: Kind) -> None:
    owner = urlsplit(database_url).username
    assert owner is not None
    with pytest.raises(UsageError, match="owns the schema"):
        await grants(database_url, kind, owner, apply=True)
    await migrate(database_url)


async def test_only_the_owner_of_the_schema_migrates(database_url: str, login: str) -> None:
    await grants(as_superuser(database_url), Kind.OWNER, urlsplit(login).username or "", apply=True)
    with pytest.raises(MigrationError, match="the schema belongs to role") as caught:
        await migrate(login)
    assert caught.value.hint == f"run `shiftboss db migrate` as {urlsplit(database_url).username}"


async def test_a_role_may_connect_where_the_public_may_not(database_url: str, login: str) -> None:
    name = urlsplit(database_url).path[1:]
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(f'REVOKE CONNECT ON DATABASE "{name}" FROM PUBLIC')
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(login)
    (await given(database_url, login, Kind.VIEWER)).close()
