"""Settings of the role or the database, and an unannounced transaction pooler, change no result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.listen import MISSED, listen
from shiftboss.db.migrate import is_current, migrate
from shiftboss.model.task import NewTask
from tests.pooler import needs_pooler, pooler
from tests.servers import ODD_SETTINGS, direct


@pytest.fixture
def odd_url(database_url: str) -> str:
    with psycopg.connect(direct(database_url), autocommit=True) as conn:
        for name, value in ODD_SETTINGS.items():
            values = ", ".join(f"'{part.strip()}'" for part in value.split(","))
            conn.execute(f"ALTER DATABASE {conn.info.dbname} SET {name} = {values}")  # type: ignore[arg-type]
        conn.execute("CREATE SCHEMA odd; CREATE TABLE odd.tasks (nothing int)")
    return direct(database_url)


@pytest.fixture(params=["directly", pytest.param("through a pooler", marks=needs_pooler)])
async def odd(request: pytest.FixtureRequest, odd_url: str) -> AsyncIterator[Database]:
    if request.param == "directly":
        async with await Database.open(odd_url) as db:
            yield db
    else:
        async with pooler(odd_url) as url, await Database.open(url) as db:
            yield db


async def test_statements_run_with_our_settings(odd: Database) -> None:
    row = await odd.fetch_one(
        "SELECT current_setting('transaction_isolation') AS isolation, now() AS now, interval '1 day' AS day,"
        " current_setting('idle_in_transaction_session_timeout') AS idle"
    )
    assert row is not None
    assert (row["isolation"], row["day"], row["idle"]) == ("read committed", timedelta(days=1), "0")
    assert abs(row["now"] - datetime.now(UTC)) < timedelta(minutes=1)
    async with odd.transaction() as conn:
        row = await (
            await conn.execute("SELECT current_setting('transaction_isolation') AS level")
        ).fetchone()
    assert row == {"level": "read committed"}


async def test_many_claimers_get_each_task_once(odd: Database) -> None:
    await odd.tasks.enqueue([NewTask(task_type="a", params={"n": n}) for n in range(60)])

    async def work(name: str) -> list[int]:
        done = []
        while held := await odd.tasks.claim(name, 4):
            ids, leases = [task.id for task in held], [task.lease for task in held]
            stale = await odd.fetch_one("SELECT shiftboss.complete(%s, %s, NULL) AS ids", [ids, leases])
            assert stale == {"ids": []}
            done += [task.params["n"] for task in held]
        return done

    found = await asyncio.gather(*(work(f"w{n}") for n in range(5)))
    assert sorted(n for part in found for n in part) == list(range(60))
    rows = await odd.fetch("SELECT status, count(*) AS n FROM public.tasks GROUP BY 1")
    assert rows == [{"status": "Complete", "n": 60}]


async def test_two_parents_that_end_at_once_free_their_child(odd: Database) -> None:
    parents = [made.id for made in await odd.tasks.enqueue([NewTask(task_type="p"), NewTask(task_type="p")])]
    await odd.tasks.enqueue([NewTask(task_type="c", depends_on=parents)])
    held = await odd.tasks.claim("w", 2)
    end = "SELECT shiftboss.complete(%s, %s, NULL)"
    await asyncio.gather(*(odd.fetch(end, [[task.id], [task.lease]]) for task in held))
    assert [task.task_type for task in await odd.tasks.claim("w")] == ["c"]


async def test_migrating_with_odd_settings(odd: Database) -> None:
    await migrate(odd.url)
    assert await is_current(odd.url)


@needs_pooler
async def test_a_pooler_keeps_nothing_of_ours(odd_url: str) -> None:
    """Its sessions serve other clients as well: no prepared statement and no setting stays in one."""
    async with pooler(odd_url, 1) as url:
        async with await Database.open(url) as db:
            assert db.pooled
            for _ in range(10):
                await db.tasks.enqueue([NewTask(task_type="a")])
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
            query = "SELECT current_setting('DateStyle'), (SELECT count(*) FROM pg_prepared_statements)"
            assert await (await other.execute(query, prepare=False)).fetchone() == ("SQL, DMY", 0)


@needs_pooler
async def test_a_listener_behind_a_pooler_looks_itself(database_url: str) -> None:
    async with pooler(direct(database_url)) as url:
        notices = listen(url, ["shiftboss_tasks"])
        async with asyncio.timeout(20):
            assert [await anext(notices) for _ in range(2)] == [MISSED, MISSED]
        await notices.aclose()  # type: ignore[attr-defined]


async def test_a_direct_connection_is_not_taken_for_a_pooler(database_url: str) -> None:
    async with await Database.open(direct(database_url)) as db:
        assert not db.pooled
