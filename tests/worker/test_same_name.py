"""Two workers with one name: the later one takes over, and the earlier one stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from shiftboss.app import App
from shiftboss.db import Database
from shiftboss.model.worker import Member
from tests.worker.test_process import worker
from tests.worker.test_runtime import enqueue, finished


async def test_the_later_process_takes_over_and_the_earlier_one_stops(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    gate = tmp_path / "gate"
    rare = {"SHIFTBOSS_WORKER_BEAT_SECONDS": "300", "SHIFTBOSS_WORKER_LEASE_SECONDS": "900"}
    async with worker(database_url, tmp_path, "twin", **rare) as first:
        id = await enqueue(db, "wait_for", {"path": str(gate)})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        async with worker(database_url, tmp_path, "twin") as second:
            assert await asyncio.wait_for(first.wait(), 60) == 0
            row = await db.workers.get("twin")
            assert row is not None
            assert (row["status"], row["pid"]) == ("active", second.pid)
            gate.touch()
            assert (await finished(db, id, 60))["result_data"] == "seen"
    assert [a["outcome"] for a in await db.tasks.attempts(id)] == ["lost", "complete"]


async def test_a_former_self_can_neither_claim_nor_beat_nor_leave(db: Database) -> None:
    former, latter = uuid4(), uuid4()
    await db.workers.register(Member(id="w", incarnation=former))
    assert (await db.workers.beat("w", [], incarnation=former)).known
    await db.workers.register(Member(id="w", incarnation=latter))
    await enqueue(db, "t")
    assert await db.tasks.claim("w", 1, incarnation=former) == []
    [task] = await db.tasks.claim("w", 1)
    assert not (await db.workers.beat("w", [], incarnation=former)).known
    assert await db.workers.leave("w", incarnation=former) == 0
    assert (await db.workers.beat("w", [task.lease], incarnation=latter)).lost == []
    assert (await db.workers.beat("w", [task.lease])).known  # from plain SQL, without an incarnation


async def test_workers_of_one_app_in_one_process_are_two(db: Database) -> None:
    app = App("pair")

    @app.task(queue="a")
    async def on_a() -> str:
        return "a"

    @app.task(queue="b")
    async def on_b() -> str:
        return "b"

    await app.use(db)
    async with app.worker(queues=["a"]) as one, app.worker(queues=["b"]) as two:
        assert one.id != two.id
        assert await (await on_a.enqueue()).result(timeout=30) == "a"
        assert await (await on_b.enqueue()).result(timeout=30) == "b"


async def test_of_four_who_register_one_name_at_once_one_wins(db: Database) -> None:
    """They were all there before the first had registered: none is the successor of another."""
    members = [Member(id="new", incarnation=uuid4(), age_seconds=1.0) for _ in range(4)]
    answers = await asyncio.gather(*map(db.workers.register, members), return_exceptions=True)
    refused = [answer for answer in answers if answer is not None]
    assert [getattr(error, "sqlstate", error) for error in refused] == ["23505"] * 3
    assert "another process at the same time" in str(refused[0])
    row = await db.workers.get("new")
    assert row is not None
    assert row["incarnation"] == members[answers.index(None)].incarnation


async def test_a_refused_process_says_so_and_ends(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    async with (
        worker(database_url, tmp_path, "twin") as first,
        worker(database_url, tmp_path, "twin") as second,
    ):
        await eventually(lambda: (first.returncode is None) != (second.returncode is None), 60)
        loser = second if first.returncode is None else first
        assert loser.returncode == 4
