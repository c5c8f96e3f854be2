"""Dashboard, API lists and metrics on a real streaming replica that lags, is down, frozen or the wrong one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import psutil
import pytest
from admin_helpers import served
from tests.replicas import DATABASE, ROLE, Node, Pair, pair

from shiftboss.cli.findings import Finding, database
from shiftboss.db import Database
from shiftboss.db.migrate import migrate
from shiftboss.db.replica import ReadDatabase
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask

API = "/api/v1/admin"


@pytest.fixture(scope="module")
def replicas() -> Iterator[Pair]:
    with pair() as made:
        asyncio.run(migrate(made.url))
        made.follow()
        yield made


@pytest.fixture
def database_url(replicas: Pair) -> str:
    return replicas.url


def address(node: Node) -> str:
    return f"postgresql://{ROLE}@127.0.0.1:{node.port}/{DATABASE}"


@asynccontextmanager
async def service(db: Database, read_url: str, most_lag: float = 60.0) -> AsyncIterator[httpx.AsyncClient]:
    told = {"SHIFTBOSS_DATABASE_READ_URL": read_url, "SHIFTBOSS_DATABASE_READ_LAG_SECONDS": str(most_lag)}
    settings = Settings.load({"SHIFTBOSS_DATABASE_URL": db.url, **told})
    async with served(db, settings) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:
        yield client


@contextmanager
def behind(replicas: Pair) -> Iterator[None]:
    """The standby receives everything and shows nothing new."""
    replicas.follow()
    replicas.standby.ask("SELECT pg_wal_replay_pause()")
    replicas.standby.wait("SELECT 1 WHERE pg_get_wal_replay_pause_state() = 'paused'")
    try:
        yield
    finally:
        replicas.standby.ask("SELECT pg_wal_replay_resume()")


async def replica(api: httpx.AsyncClient) -> dict[str, Any]:
    state: dict[str, Any] = (await api.get(f"{API}/overview")).json()["replica"]
    return state


async def in_use(api: httpx.AsyncClient) -> bool:
    return bool((await replica(api))["in_use"])


async def listed(api: httpx.AsyncClient, task_type: str) -> int:
    found = await api.get(f"{API}/tasks", params={"task_type": task_type})
    return len(found.json()["items"])


async def unlisted(api: httpx.AsyncClient, task_type: str) -> bool:
    return not await listed(api, task_type)


async def test_lists_come_from_the_replica_and_one_task_from_the_primary(
    replicas: Pair, db: Database, eventually: Any
) -> None:
    async with service(db, address(replicas.standby)) as api:
        await eventually(lambda: in_use(api), timeout=20)
        with behind(replicas):
            [made] = await db.tasks.enqueue([NewTask(task_type="unseen")])
            await eventually(lambda: unlisted(api, "unseen"), timeout=20)
            assert (await api.get(f"{API}/tasks/{made.id}")).json()["task_type"] == "unseen"
            lag = await eventually(lambda: shown_lag(api), timeout=20)
            assert 0 < lag < 60
            await eventually(lambda: said(api, "Data is read from the replica"), timeout=20)
            # Whoever changes something sees it, and everything before it, in the next list.
            assert (await api.post(f"{API}/tasks/{made.id}/cancel")).status_code == 200
            assert await listed(api, "unseen") == 1
            assert "read_replica_in_use 0.0" in (await api.get("/metrics")).text
        await eventually(lambda: in_use(api), timeout=20)
        assert await listed(api, "unseen") == 1


async def said(api: httpx.AsyncClient, text: str) -> bool:
    return text in (await api.get("/")).text


async def shown_lag(api: httpx.AsyncClient) -> float | None:
    lines = (await api.get("/metrics")).text.splitlines()
    if "read_replica_in_use 1.0" not in lines:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith("read_replica_lag_sec")), None)


async def test_the_primary_answers_while_the_replica_is_too_far_behind(
    replicas: Pair, db: Database, eventually: Any
) -> None:
    async with service(db, address(replicas.standby), most_lag=0.2) as api:
        await eventually(lambda: in_use(api), timeout=20)
        with behind(replicas):
            await db.tasks.enqueue([NewTask(task_type="late")])
            await eventually(lambda: listed(api, "late"), timeout=20)
            await eventually(lambda: far_behind(api), timeout=20)
            await eventually(lambda: said(api, "<b>Read replica</b></a>: the replica is"), timeout=20)
        await eventually(lambda: in_use(api), timeout=20)


async def far_behind(api: httpx.AsyncClient) -> bool:
    state = await replica(api)
    return (state["lag_seconds"] or 0) > 0.2 and state["reason"].endswith("s behind")


async def test_the_primary_answers_while_the_replica_is_away(
    replicas: Pair, db: Database, eventually: Any
) -> None:
    async with service(db, address(replicas.standby)) as api:
        await eventually(lambda: in_use(api), timeout=20)
        replicas.standby.kill()
        await db.tasks.enqueue([NewTask(task_type="alone")])
        assert await listed(api, "alone") == 1, "no request fails"
        assert not await in_use(api)
        replicas.standby.start()
        await eventually(lambda: in_use(api), timeout=30)
        assert await listed(api, "alone") == 1


async def test_a_read_that_meets_a_frozen_replica_is_answered_by_the_primary(
    replicas: Pair, db: Database, eventually: Any
) -> None:
    reads = ReadDatabase(db, address(replicas.standby), 60.0)
    await eventually(lambda: reads.look(), timeout=20)
    assert (await eventually(lambda: _usable(reads), timeout=20)).in_use
    with frozen(replicas.standby):
        rows = await asyncio.wait_for(reads.fetch("SELECT pg_is_in_recovery() AS standby"), 20)
        assert rows == [{"standby": False}]
        assert reads.state.reason == "the replica did not answer for 2 s"
    await eventually(lambda: _usable(reads), timeout=30)
    await reads.close()


async def _usable(reads: ReadDatabase) -> Any:
    state = await reads.look()
    return state if state.in_use else None


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    assert node._process is not None
    processes = [psutil.Process(node._process.pid), *psutil.Process(node._process.pid).children()]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            if process.is_running():
                process.send_signal(signal.SIGCONT)


async def test_writes_and_transactions_are_the_primarys(
    replicas: Pair, db: Database, eventually: Any
) -> None:
    reads = ReadDatabase(db, address(replicas.standby), 60.0)
    assert await eventually(lambda: _usable(reads), timeout=20)
    assert await reads.execute("SELECT shiftboss.note('written')") == 1
    async with reads.transaction() as conn:
        assert not (await (await conn.execute("SELECT pg_is_in_recovery() AS yes")).fetchone() or {})["yes"]
    # A function that writes cannot run on the standby, so the primary runs it.
    [made] = await reads.fetch("SELECT shiftboss.note('written as well') IS NOT NULL AS done")
    assert "done" in made
    await reads.close()


async def test_another_server_is_not_read_from(replicas: Pair, db: Database) -> None:
    primary = ReadDatabase(db, address(replicas.primary), 60.0)
    assert (await primary.look()).reason == "database.read_url points to a server that is not a standby"
    nowhere = ReadDatabase(db, f"postgresql://{ROLE}@127.0.0.1:1/{DATABASE}", 60.0)
    assert not (await nowhere.look()).in_use
    assert await nowhere.fetch("SELECT 1 AS one") == [{"one": 1}]
    for one in (primary, nowhere):
        await one.close()


async def test_the_doctor_tells_how_far_the_replica_is_behind(
    replicas: Pair, db: Database, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_READ_URL", address(replicas.standby))

    async def found() -> Finding:
        return next(one for one in await database(db) if one.area == "replica")

    async def good() -> bool:
        return (await found()).level == "ok"

    await eventually(good, timeout=20)
    monkeypatch.setenv("SHIFTBOSS_DATABASE_READ_URL", address(replicas.primary))
    finding = await found()
    assert (finding.level, finding.message) == (
        "warning",
        "database.read_url points to a server that is not a standby",
    )
