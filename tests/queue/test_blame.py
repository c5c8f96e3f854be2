"""Which task spends an attempt when a worker is gone: shiftboss.judge and every function that uses it."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from shiftboss.db import Database
from shiftboss.model.task import Claimed, NewTask
from shiftboss.model.worker import Member

LATER = "SELECT set_config('shiftboss.now', (now() + %s::interval)::text, false)"
SUPERVISED = """
INSERT INTO health (component, host, member_id) VALUES ('worker:q:0', 'here', 'w');
INSERT INTO shiftboss.supervisors (host, pid) VALUES ('here', 1);
"""


@pytest.fixture
async def held(db: Database) -> list[Claimed]:
    """Three tasks in the hands of worker w."""
    await db.workers.register(Member(id="w", incarnation=uuid4()))
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(3)])
    return await db.tasks.claim("w", 3)


async def states(db: Database) -> dict[UUID, tuple[Any, ...]]:
    rows = await db.fetch(
        "SELECT t.id, t.status, t.attempts, t.crashes, a.outcome FROM tasks t"
        " LEFT JOIN shiftboss.past_attempts a ON a.task_id = t.id"
    )
    return {row["id"]: tuple(row.values())[1:] for row in rows}


async def rescued(db: Database, later: str) -> int:
    """How many tasks a rescue at a later time finds."""
    async with db.connection() as conn:
        await conn.execute(LATER, [later])
        row = await (await conn.execute("SELECT * FROM shiftboss.rescue()")).fetchone()
        await conn.execute("SELECT set_config('shiftboss.now', '', false)")
    assert row is not None
    return int(row["tasks_rescued"])


async def test_one_is_guilty(db: Database, held: list[Claimed]) -> None:
    guilty, *others = held
    assert await db.workers.worker_died("w", "crashed", "killed", [guilty.lease]) == 3
    assert await states(db) == {
        guilty.id: ("Queued", 1, 1, "crashed"),
        **{task.id: ("Queued", 0, 0, "interrupted") for task in others},
    }


async def test_some_are_suspects(db: Database, held: list[Claimed]) -> None:
    *suspects, innocent = held
    await db.workers.worker_died("w", "crashed", "killed", [task.lease for task in suspects])
    assert await states(db) == {
        innocent.id: ("Queued", 0, 0, "interrupted"),
        **{task.id: ("Queued", 0, 1, "interrupted") for task in suspects},
    }


async def test_a_lease_that_it_no_longer_holds_blames_nobody_else(db: Database, held: list[Claimed]) -> None:
    """The guilty attempt was reported before its worker ended: what is left are its neighbours."""
    await db.workers.worker_died("w", "crashed", "killed", [-1])
    assert set((await states(db)).values()) == {("Queued", 0, 0, "interrupted")}


@pytest.mark.parametrize("path", ["rescue", "register", "silent"])
async def test_nothing_is_known(db: Database, held: list[Claimed], path: str) -> None:
    if path == "rescue":
        assert await rescued(db, "31 seconds") == 3
    elif path == "register":
        await db.workers.register(Member(id="w", incarnation=uuid4()))
    else:
        await db.execute("INSERT INTO health (component, member_id) VALUES ('worker:q:0', 'w')")
        await db.health.mark_crashed("worker:q:0", "no beat for 30 s", outcome="lost")
    assert set((await states(db)).values()) == {("Queued", 0, 1, "interrupted")}


async def test_a_suspect_that_is_lost_alone_spends_its_attempts(db: Database, held: list[Claimed]) -> None:
    await db.execute("DELETE FROM tasks WHERE id <> %s", [held[0].id])
    await db.execute("UPDATE tasks SET crashes = 1")
    for attempt in (1, 2, 3):
        await db.workers.register(Member(id="w", incarnation=uuid4()))
        row = await db.tasks.get(held[0].id)
        assert row
        assert (row["status"], row["attempts"]) == ("Failed" if attempt == 3 else "Queued", attempt)
        await db.tasks.claim("w", 1)


async def test_suspects_of_a_worker_that_does_not_run_them_alone_are_found_too(
    db: Database, held: list[Claimed]
) -> None:
    """As a worker in another language may: each loss after the first spends an attempt."""
    for attempts in (0, 1, 2, 3):
        await db.workers.register(Member(id="w", incarnation=uuid4()))
        rows = await db.fetch("SELECT status, attempts FROM tasks")
        assert rows == [{"status": "Failed" if attempts == 3 else "Queued", "attempts": attempts}] * 3
        await db.tasks.claim("w", 3)


async def test_an_external_worker_spends_what_it_loses(db: Database) -> None:
    """It claims by func_claim_available_task and knows nothing of suspects."""
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(2)])
    for _ in range(2):
        await db.execute("SELECT func_claim_available_task('outside')")
    assert await rescued(db, "6 minutes") == 2
    assert set((await states(db)).values()) == {("Queued", 1, 0, "lost")}


async def test_the_rescuer_leaves_the_verdict_to_a_living_supervisor(
    db: Database, held: list[Claimed]
) -> None:
    await db.execute(SUPERVISED)
    await db.execute("UPDATE shiftboss.supervisors SET last_seen = last_seen + 100")
    assert await rescued(db, "31 seconds") == 0
    assert await rescued(db, "62 seconds") == 3  # the supervisor never spoke


async def test_the_rescuer_does_not_wait_for_a_supervisor_that_is_gone(
    db: Database, held: list[Claimed]
) -> None:
    await db.execute(SUPERVISED)
    assert await rescued(db, "31 seconds") == 3
