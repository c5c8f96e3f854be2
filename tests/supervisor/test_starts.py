"""Processes that cannot start yet, without a database or CPU time, are not given up."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from shiftboss.db import Database
from shiftboss.db.health import Health
from shiftboss.db.installation import Installation
from shiftboss.db.leases import Leases
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable
from tests.conftest import admin, outage
from tests.supervisor.conftest import (
    SLOT,
    Supervise,
    ended,
    enqueue,
    row_of,
    script_command,
    status_of,
    statuses,
)

NO_PATIENCE = {"start_seconds": 1.0, "start_max_seconds": 60.0, "restart_limit": 0}


@asynccontextmanager
async def crowded(url: str) -> AsyncIterator[str]:
    """The URL of a role that may not connect any more: its limit on connections is reached."""
    role = f"crowded_{uuid4().hex[:12]}"
    admin(url, f"CREATE ROLE {role} LOGIN PASSWORD 'crowded' CONNECTION LIMIT 0")
    parts = urlsplit(url)
    try:
        yield urlunsplit(parts._replace(netloc=f"{role}:crowded@{parts.netloc.rpartition('@')[2]}"))
    finally:
        admin(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
        admin(url, f"DROP ROLE {role}")


async def restarts(db: Database) -> list[int]:
    return [row["restart_count"] for row in await db.health.get_all_workers()]


@pytest.mark.session  # the pooler does not know the role
async def test_a_worker_that_is_refused_waits(
    db: Database, supervise: Supervise, eventually: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """The supervisor has its connections, new ones are refused: far longer than a start may take."""
    async with crowded(db.url) as url:
        monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", url)
        async with supervise({"q": 2}, **NO_PATIENCE) as supervisor:
            said = ""

            def waits() -> bool:
                nonlocal said
                said += capfd.readouterr().err
                return said.count("waiting for the database") > 8

            await eventually(waits, timeout=60)
            pids = [slot.process.pid for slot in supervisor.slots if slot.process]
            assert "too many connections for role" in said
            assert set((await statuses(db)).values()) == {"starting"}
            admin(db.url, f"ALTER ROLE {urlsplit(url).username} SUPERUSER CONNECTION LIMIT -1")
            await eventually(lambda: both_healthy(db), timeout=60)
            assert [slot.process.pid for slot in supervisor.slots if slot.process] == pids
            assert await restarts(db) == [0, 0]


async def both_healthy(db: Database) -> bool:
    return list((await statuses(db)).values()) == ["healthy"] * 2


@pytest.mark.session  # the pooler does not know the role
async def test_a_worker_without_beats_for_want_of_a_database_is_not_hung(
    db: Database, database_url: str, supervise: Supervise, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the worker's role is locked out, so that its supervisor sees nothing but silence."""
    async with crowded(database_url) as url:
        role = urlsplit(url).username
        admin(db.url, f"ALTER ROLE {role} SUPERUSER CONNECTION LIMIT -1")
        monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", url)
        monkeypatch.setenv("SHIFTBOSS_WORKER_LEASE_SECONDS", "60")
        async with supervise({"q": 1}, start_seconds=60, timeout_seconds=7.0, restart_limit=0):
            await eventually(lambda: status_of(db, "healthy"), timeout=60)
            before = await row_of(db, SLOT)
            admin(db.url, f"ALTER ROLE {role} NOLOGIN")
            admin(db.url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
            await asyncio.sleep(12.0)  # the time of the outage is the thing under test
            assert await status_of(db, "healthy")
            admin(db.url, f"ALTER ROLE {role} LOGIN")
            task = await enqueue(db, "nothing")
            done = await eventually(lambda: ended(db, task), timeout=60)
            assert done["result_data"] == before["pid"]
            assert await restarts(db) == [0]


async def test_slots_that_start_while_the_database_is_away_come_up_after_it(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 1}, start_seconds=60, restart_limit=0):
        await eventually(lambda: status_of(db, "healthy"), timeout=60)
        [before] = [row["pid"] for row in await db.health.get_all_workers()]
        await db.health.restart_workers([SLOT])
        async with outage(db):
            await asyncio.sleep(3.0)  # the time of the outage is the thing under test

        async def new_one() -> bool:
            with suppress(DatabaseError):  # our pool may still hold connections that were cut
                row = await db.health.get_worker(SLOT)
                return row is not None and row["status"] == "healthy" and row["pid"] != before
            return False

        await eventually(new_one, timeout=60)
        assert await restarts(db) == [0]


async def test_a_process_that_ends_for_want_of_a_database_does_not_count(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    command = script_command(f"echo >> {starts}; exit 5")
    async with supervise({"q": 1}, command, restart_limit=0):
        await eventually(lambda: starts.exists() and len(starts.read_bytes()) >= 4, timeout=30)
        assert "failed" not in (await statuses(db)).values()
        assert await restarts(db) == [0]


BUSY = "import time\nwhile True: time.process_time()"


async def test_a_process_that_visibly_starts_gets_more_time_but_not_for_ever(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    def command(queue: str, component: str, member: str) -> list[str]:
        return [sys.executable, "-c", BUSY] if component == SLOT else ["sleep", "600"]

    limits = {"start_seconds": 0.5, "start_max_seconds": 4.0, "restart_delay_seconds": 60}
    async with supervise({"q": 2}, command, **limits):
        await eventually(lambda: status_of(db, "crashed", "worker:q:1"))
        assert await status_of(db, "starting")
        await eventually(lambda: status_of(db, "crashed"), timeout=20)
        assert "no beat within 4" in str(await row_of(db, SLOT))


@pytest.mark.parametrize("status", ["crashed", "starting"])
async def test_a_failed_slot_that_is_cleared_by_hand_starts_again(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path, status: str
) -> None:
    """By plain SQL, as documented; at once, and with all its restarts before it."""
    good, starts = tmp_path / "good", tmp_path / "starts"
    script = f"echo >> {starts}; test -e {good} && exec sleep 600; exit 3"
    quick = {"restart_delay_seconds": 0.01, "restart_limit": 2, "check_seconds": 60.0}
    async with supervise({"q": 1}, script_command(script), **quick):
        await eventually(lambda: status_of(db, "failed"))
        await db.execute("UPDATE health SET status = %s, restart_count = 0", [status])
        await eventually(lambda: len(starts.read_bytes()) == 6)
        await eventually(lambda: status_of(db, "failed"))
        good.touch()
        await db.execute("UPDATE health SET status = %s, restart_count = 0", [status])
        await eventually(lambda: len(starts.read_bytes()) == 7)
        await eventually(lambda: status_of(db, "starting"))
        assert await restarts(db) == [0]


@pytest.mark.parametrize(
    ("family", "call"),
    [
        (Installation, "own"),
        (Leases, "acquire_lease"),
        (Health, "begin_supervisor"),
        (Health, "survey"),
        (Health, "open_slot"),
    ],
)
async def test_a_supervisor_that_starts_waits_for_the_database(
    db: Database,
    supervise: Supervise,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    family: type,
    call: str,
) -> None:
    away(monkeypatch, family, call)
    async with supervise({"q": 1}, script_command("sleep 60")):
        await eventually(lambda: statuses(db))


def away(monkeypatch: pytest.MonkeyPatch, family: type, call: str) -> None:
    """Let the database be away when this is called for the first time."""
    original, calls = getattr(family, call), 0

    async def fails_once(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise DatabaseUnavailable("the connection was terminated")
        return await original(*args, **kwargs)

    monkeypatch.setattr(family, call, fails_once)
