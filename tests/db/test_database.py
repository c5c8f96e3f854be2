from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, MigrationError
from tests.conftest import as_superuser
from tests.servers import PASSWORD


async def test_rows_are_dicts_and_json_is_python(db: Database) -> None:
    rows = await db.fetch("SELECT %(a)s::jsonb AS a, %(b)s::int[] AS b", {"a": {"x": [1, "ä"]}, "b": [1, 2]})
    assert rows == [{"a": {"x": [1, "ä"]}, "b": [1, 2]}]


async def test_fetch_one_is_none_without_rows(db: Database) -> None:
    assert await db.fetch_one("SELECT 1 AS one WHERE false") is None


async def test_execute_counts_rows(db: Database) -> None:
    await db.execute("CREATE TABLE numbers (n int)")
    assert await db.execute("INSERT INTO numbers SELECT generate_series(1, 3)") == 3


async def test_a_failed_transaction_leaves_nothing(db: Database) -> None:
    await db.execute("CREATE TABLE numbers (n int)")
    with pytest.raises(RuntimeError):
        async with db.transaction() as conn:
            await conn.execute("INSERT INTO numbers VALUES (1)")
            raise RuntimeError
    assert await db.fetch("SELECT * FROM numbers") == []


async def test_a_refused_statement_is_our_error(db: Database) -> None:
    with pytest.raises(DatabaseError) as caught:
        await db.execute("DO $$ BEGIN RAISE EXCEPTION 'no' USING HINT = 'say yes', ERRCODE = 'SB001'; END $$")
    assert (caught.value.message, caught.value.hint, caught.value.sqlstate) == ("no", "say yes", "SB001")


async def test_a_wrong_password_says_so(database_url: str) -> None:
    wrong = database_url.replace(f":{PASSWORD}@", ":wrong@")
    with pytest.raises(DatabaseUnavailable, match="password authentication failed") as caught:
        await Database.open(wrong)
    assert "PGPASSWORD" in (caught.value.hint or "")


async def test_a_missing_database_and_a_full_one_say_so(database_url: str, login: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="does not exist") as caught:
        await Database.open(urlsplit(database_url)._replace(path="/nowhere").geturl())
    assert "create the database" in (caught.value.hint or "")
    with psycopg.connect(as_superuser(database_url), autocommit=True) as conn:
        conn.execute(f"ALTER ROLE {urlsplit(login).username} CONNECTION LIMIT 0".encode())
    with pytest.raises(DatabaseUnavailable, match="too many connections") as caught:
        await Database.open(login)
    assert "CONNECTION LIMIT" in (caught.value.hint or "")


async def test_a_read_only_server_says_so(database_url: str) -> None:
    async with await Database.open(database_url) as db:
        with pytest.raises(DatabaseError, match="read-only transaction") as caught:
            async with db.transaction() as conn:
                await conn.execute("SET TRANSACTION READ ONLY")
                await conn.execute("DELETE FROM public.tasks")
    assert "address of the primary" in (caught.value.hint or "")


async def test_nobody_listening_says_so() -> None:
    with pytest.raises(DatabaseUnavailable, match="refused"):
        await Database.open("postgresql://shiftboss@127.0.0.1:1/shiftboss")


async def test_the_settings_name_pool_size_and_direct_url(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setenv("SHIFTBOSS_DATABASE_DIRECT_URL", f"{database_url}?application_name=direct")
    monkeypatch.setenv("SHIFTBOSS_DATABASE_POOL_SIZE", "1")
    query = "SELECT current_setting('application_name') AS name"
    async with await Database.open() as db:
        async with db.connection():
            with pytest.raises(TimeoutError):  # the only connection is taken
                await asyncio.wait_for(db.fetch("SELECT 1"), 0.2)
        async with db.dedicated() as conn:
            assert await (await conn.execute(query)).fetchone() == {"name": "direct"}


async def test_an_unmigrated_server_of_yours_is_refused(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", empty_database_url)
    with pytest.raises(MigrationError) as caught:
        await Database.open()
    assert caught.value.hint == "run `shiftboss db migrate`"


async def test_numbers_and_depths_beyond_python_are_shown_all_the_same(db: Database) -> None:
    deep = "[" * 3000 + "]" * 3000
    row = await db.fetch_one(
        'SELECT \'{"far": 1e400, "near": 2, "whole": 3.5}\'::jsonb AS far, %s::jsonb AS deep', [deep]
    )
    assert row == {"far": {"far": f"1{'0' * 400}", "near": 2, "whole": 3.5}, "deep": deep}


async def test_the_connection_at_hand_goes_to_whoever_waits(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a pool of one: nobody can be left waiting for the connection that was kept at hand."""
    monkeypatch.setenv("SHIFTBOSS_DATABASE_POOL_SIZE", "1")
    async with await Database.open(database_url) as db:
        for _ in range(3):
            await db.fetch("SELECT 1")
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(db.fetch("SELECT pg_sleep(0.001)"))


@pytest.mark.session
async def test_one_login_is_enough_to_open_a_database(database_url: str) -> None:
    async with await Database.open(database_url) as db:
        counted = "SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database()"
        assert await db.value(int, f"{counted} AND backend_type = 'client backend'") == 1


@pytest.mark.session
async def test_a_pool_that_may_be_empty_keeps_no_session(database_url: str) -> None:
    database = await Database._open(database_url, None, (0, 2))
    with psycopg.connect(database_url) as conn:
        found = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
    assert found == (0,)
    await database.close()


async def test_a_connection_at_hand_that_died_costs_one_error(database_url: str) -> None:
    async with await Database.open(database_url) as db, db.dedicated() as other:
        await db.fetch("SELECT 1")
        row = await db.fetch_one("SELECT pg_backend_pid() AS pid")
        assert row is not None
        await other.execute("SELECT pg_terminate_backend(%s, 5000)", [row["pid"]])
        with pytest.raises(DatabaseUnavailable):
            await db.fetch("SELECT 1")
        assert await db.fetch("SELECT 2 AS two") == [{"two": 2}]


async def test_nothing_stays_open_after_the_close(db: Database, eventually: Callable[..., Any]) -> None:
    async with await Database.open(db.url) as own:
        for _ in range(3):
            row = await own.fetch_one("SELECT pg_backend_pid() AS pid")
        assert row is not None

    async def gone() -> bool:
        return not await db.fetch("SELECT FROM pg_stat_activity WHERE pid = %s", [row["pid"]])

    await eventually(gone)
