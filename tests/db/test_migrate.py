from __future__ import annotations

import asyncio
import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from shiftboss.db.connection import connect
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import is_current, migrate
from shiftboss.db.sqlfiles import SqlFile, SqlTree, all_trees
from shiftboss.model.errors import MigrationError

TABLE = SqlFile("0001_thing", "CREATE TABLE public.thing (id int PRIMARY KEY, name text);")
COLUMN = SqlFile("0002_colour", "ALTER TABLE public.thing ADD COLUMN colour text;")
COUNT = SqlFile(
    "count",
    "CREATE OR REPLACE FUNCTION public.things() RETURNS int LANGUAGE sql AS 'SELECT count(*)::int FROM public.thing';",
)
NAMES = SqlFile("a_names", "CREATE OR REPLACE VIEW public.names AS SELECT id, name FROM public.thing;")
UPPER = SqlFile(
    "b_upper",
    "CREATE OR REPLACE VIEW public.upper_names AS SELECT id, upper(name) AS name FROM public.names;",
)
TREE = SqlTree([TABLE], [COUNT], [NAMES, UPPER])


def query(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(sql)
        return cursor.fetchall() if cursor.description else []


async def test_twice_is_once(empty_database_url: str) -> None:
    url = empty_database_url
    assert not await is_current(url, trees=[TREE])
    assert (await migrate(url, trees=[TREE])).applied == ["0001_thing"]
    assert await is_current(url, trees=[TREE])
    assert (await migrate(url, trees=[TREE])).applied == []
    assert query(url, "SELECT things()") == [(0,)]


async def test_a_dry_run_shows_the_sql_and_changes_nothing(empty_database_url: str) -> None:
    shown = await migrate(empty_database_url, dry_run=True, trees=[TREE])
    assert TABLE.sql in shown.sql
    assert UPPER.sql in shown.sql
    assert query(empty_database_url, "SELECT to_regclass('thing'), to_regnamespace('shiftboss')") == [
        (None, None)
    ]


async def test_the_shown_sql_is_the_whole_schema(empty_database_url: str) -> None:
    """An administrator may run it with psql: the next migration finds nothing to do."""
    shown = await migrate(empty_database_url, dry_run=True)
    query(empty_database_url, shown.sql)
    assert await is_current(empty_database_url)
    assert (await migrate(empty_database_url)).applied == []


async def test_a_skipped_migration_locks_nothing(empty_database_url: str) -> None:
    needy = SqlFile("0002_needy", "-- requires: teleport\nALTER TABLE public.thing ADD COLUMN place int;")
    tree = dataclasses.replace(TREE, migrations=[TABLE, needy])
    await migrate(empty_database_url, trees=[tree])
    with psycopg.connect(empty_database_url) as reader:
        reader.execute("SELECT FROM public.thing, shiftboss.migrations")
        async with asyncio.timeout(30):
            await migrate(empty_database_url, trees=[tree])


async def test_a_failure_changes_nothing(empty_database_url: str) -> None:
    broken = SqlFile("0002_broken", "ALTER TABLE public.nothing ADD COLUMN x int;")
    with pytest.raises(MigrationError, match="0002_broken"):
        await migrate(empty_database_url, trees=[dataclasses.replace(TREE, migrations=[TABLE, broken])])
    assert query(empty_database_url, "SELECT to_regclass('thing')") == [(None,)]


async def test_a_newer_schema_is_refused(empty_database_url: str) -> None:
    await migrate(empty_database_url, trees=[dataclasses.replace(TREE, migrations=[TABLE, COLUMN])])
    with pytest.raises(MigrationError, match="newer than this Shiftboss: it contains 0002_colour") as caught:
        await migrate(empty_database_url, trees=[TREE])
    assert "upgrade" in (caught.value.hint or "")
    with pytest.raises(MigrationError, match="newer"):
        await is_current(empty_database_url, trees=[TREE])


async def test_a_changed_migration_is_refused(empty_database_url: str) -> None:
    await migrate(empty_database_url, trees=[TREE])
    changed = SqlFile(TABLE.name, TABLE.sql + "-- changed")
    with pytest.raises(MigrationError, match="0001_thing was changed"):
        await migrate(empty_database_url, trees=[dataclasses.replace(TREE, migrations=[changed])])


async def test_views_may_lose_and_rename_columns(empty_database_url: str) -> None:
    await migrate(empty_database_url, trees=[TREE])
    names = SqlFile(
        "a_names", "CREATE OR REPLACE VIEW public.names AS SELECT name AS title FROM public.thing;"
    )
    upper = SqlFile(
        "b_upper",
        "CREATE OR REPLACE VIEW public.upper_names AS SELECT upper(title) AS title FROM public.names;",
    )
    await migrate(empty_database_url, trees=[dataclasses.replace(TREE, views=[names, upper])])
    query(empty_database_url, "INSERT INTO thing VALUES (1, 'one')")
    assert query(empty_database_url, "SELECT title FROM upper_names") == [("ONE",)]


async def test_functions_under_views_may_change_their_type(empty_database_url: str) -> None:
    view = SqlFile("total", "CREATE OR REPLACE VIEW public.total AS SELECT public.things() AS n;")
    await migrate(empty_database_url, trees=[dataclasses.replace(TREE, views=[view])])
    count = SqlFile("count", COUNT.sql.replace("RETURNS int", "RETURNS text").replace("::int", "::text"))
    await migrate(empty_database_url, trees=[dataclasses.replace(TREE, functions=[count], views=[view])])
    assert query(empty_database_url, "SELECT n FROM total") == [("0",)]


async def test_a_users_view_on_ours_is_never_dropped(empty_database_url: str) -> None:
    await migrate(empty_database_url, trees=[TREE])
    query(empty_database_url, "CREATE VIEW mine AS SELECT id FROM upper_names")
    upper = SqlFile("b_upper", "CREATE OR REPLACE VIEW public.upper_names AS SELECT name FROM public.names;")
    with pytest.raises(MigrationError, match=r"mine depends on view public\.upper_names"):
        await migrate(empty_database_url, trees=[dataclasses.replace(TREE, views=[NAMES, upper])])
    assert query(empty_database_url, "SELECT * FROM mine") == []


async def test_a_missing_extension_is_a_word_not_a_failure(empty_database_url: str) -> None:
    needy = SqlFile("0002_needy", "-- requires: teleport\nSELECT beam();")
    tree = dataclasses.replace(TREE, migrations=[TABLE, needy])
    done = await migrate(empty_database_url, trees=[tree])
    assert done.applied == ["0001_thing"]
    assert "extension teleport is not available" in done.notices[0]
    assert "0002_needy" in done.notices[0]
    assert await is_current(empty_database_url, trees=[tree])


async def test_a_required_extension_is_installed(empty_database_url: str) -> None:
    needy = SqlFile(
        "0002_vectors", "-- requires: vector\nALTER TABLE public.thing ADD COLUMN place vector(3);"
    )
    done = await migrate(empty_database_url, trees=[dataclasses.replace(TREE, migrations=[TABLE, needy])])
    assert (done.applied, done.notices) == (["0001_thing", "0002_vectors"], [])


SLOW_VACUUM = """
ALTER TABLE public.thing SET (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1,
    autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0);
INSERT INTO public.thing SELECT n, repeat('x', 500) FROM generate_series(1, 20000) n;
DELETE FROM public.thing;
"""
VACUUMS = """SELECT a.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.relation = 'public.thing'::regclass AND a.backend_type = 'autovacuum worker'"""


async def test_autovacuum_does_not_hold_up_a_migration(
    tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """An ordinary role cannot cancel it. PostgreSQL does, for a session that waits long enough.

    The server has no other databases that autovacuum could visit first.
    """
    server = EmbeddedServer(
        tmp_path / "server", settings={"fsync": "off", "autovacuum_naptime": "1s"}, linger=0
    )
    superuser = urlsplit(await asyncio.to_thread(server.acquire))
    ordinary = urlunsplit(superuser._replace(netloc=f"shop:x@{superuser.netloc.split('@')[1]}", path="/shop"))
    try:
        query(urlunsplit(superuser), "CREATE ROLE shop LOGIN PASSWORD 'x'")
        query(urlunsplit(superuser), "CREATE DATABASE shop OWNER shop")
        await migrate(ordinary, trees=[TREE])
        query(ordinary, SLOW_VACUUM)
        await eventually(lambda: query(urlunsplit(superuser._replace(path="/shop")), VACUUMS), 60)
        async with asyncio.timeout(30):
            more = dataclasses.replace(TREE, migrations=[TABLE, COLUMN])
            assert (await migrate(ordinary, trees=[more])).applied == ["0002_colour"]
    finally:
        server.release()
        await asyncio.to_thread(server.stop)


async def test_ten_migrators_at_once(empty_database_url: str) -> None:
    """Ten processes migrate the real schema: each succeeds, each migration is applied by exactly one."""
    program = "import asyncio, sys; from shiftboss.db.migrate import migrate; " + (
        "print(*asyncio.run(migrate(sys.argv[1])).applied)"
    )
    ten = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, empty_database_url, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(10)
    ]
    outputs = [(await process.communicate())[0].decode().split() for process in ten]
    assert [process.returncode for process in ten] == [0] * 10
    assert sorted(name for output in outputs for name in output) == sorted(
        file.name for tree in all_trees() for file in tree.migrations
    )
    assert await is_current(empty_database_url)


@pytest.mark.parametrize("name", ["tasks", "workers", "health"])
async def test_a_foreign_table_is_named(empty_database_url: str, name: str) -> None:
    async with connect(empty_database_url) as conn:
        await conn.execute(f"CREATE TABLE public.{name} (number serial, salary numeric)")
    with pytest.raises(MigrationError, match=rf"public\.{name} existed before") as caught:
        await migrate(empty_database_url)
    assert "another database" in str(caught.value.hint)


async def test_the_guide_removes_everything(database_url: str) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
    (removal,) = re.findall(r"```sql\n(DROP SCHEMA.*?)```", guide, re.DOTALL)
    left = """
        SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')
        UNION ALL
        SELECT proname FROM pg_proc p WHERE pronamespace = 'public'::regnamespace AND NOT EXISTS
            (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
        UNION ALL
        SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public')
    """
    async with connect(database_url) as conn:
        assert await (await conn.execute(left)).fetchall() != []
        await conn.execute(removal)
        assert await (await conn.execute(left)).fetchall() == []
