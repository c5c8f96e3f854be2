"""The worker's gRPC source against real coordinators: reconnect, failover, and reports that count once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc import codec
from shiftboss.extensions.grpc.link import CoordinatorError, CoordinatorUnavailable
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.lifecycle import sleep
from shiftboss.model.errors import TasksLocked
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, NewTask, Postpone, Report, Unreadable
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.outbox import Outbox
from shiftboss.worker.runtime import Worker
from shiftboss.worker.spool import Spool
from tests.conftest import TEMPLATE, _fresh

from .conftest import StartCoordinator


def member(id: str = "w1", slots: int = 10, **fields: Any) -> Member:
    return Member(id=id, capabilities=Capabilities(max_concurrent_tasks=slots), **fields)


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Any]]:
    sources: list[CoordinatorSource] = []

    async def connect(*coordinators: Coordinator, **fields: Any) -> CoordinatorSource:
        source = CoordinatorSource([one.address for one in coordinators], CoordinatorSettings())
        await source.join(member(**fields))
        sources.append(source)
        return source

    yield connect
    for source in sources:
        await source.leave()


async def claim(source: CoordinatorSource, count: int) -> list[Claimed]:
    """As the runtime does: ask, wait for word, ask again."""
    found: list[Claimed] = []
    async with asyncio.timeout(15):
        while len(found) < count:
            found += await source.claim(count - len(found))
            if len(found) < count:
                await sleep(0.5, source.arrived)
    return found


async def enqueue(db: Database, count: int, **fields: Any) -> None:
    await db.tasks.enqueue([NewTask(task_type="echo", params={"n": n}, **fields) for n in range(count)])


async def statuses(db: Database) -> dict[str, int]:
    rows = await db.fetch("SELECT status, count(*) AS n FROM public.tasks GROUP BY status")
    return {row["status"]: row["n"] for row in rows}


async def test_a_task_that_can_not_be_read_comes_with_the_others(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    await enqueue(db, 2)
    await db.execute("""UPDATE tasks SET params = '{"n": 1e400}' WHERE id = (SELECT id FROM tasks LIMIT 1)""")
    tasks = await claim(await connect(coordinator), 2)
    assert [type(task.params) for task in tasks].count(Unreadable) == 1


async def test_claims_and_reports_every_outcome(coordinator: Coordinator, db: Database, connect: Any) -> None:
    await enqueue(db, 4)
    source = await connect(coordinator)
    tasks = await claim(source, 4)
    assert sorted(task.params["n"] for task in tasks) == [0, 1, 2, 3]
    outcomes = [Complete(b'{"ok": true}'), Fail("no", retry=False), Postpone(30, "later"), Cancelled()]
    reports = [Report(task, outcome, 0.1) for task, outcome in zip(tasks, outcomes, strict=True)]
    assert await source.report(reports) == []
    assert await statuses(db) == {"Complete": 1, "Failed": 1, "Queued": 1, "Cancelled": 1}


async def test_claims_ahead_of_its_slots(coordinator: Coordinator, db: Database, connect: Any) -> None:
    await enqueue(db, 6)
    source = await connect(coordinator, slots=2)
    running = await claim(source, 2)
    ready = await claim(source, 3)
    await source.report([Report(task, Complete(None), 0) for task in running])
    await source.beat([task.lease for task in ready], {}, [])
    last = await claim(source, 1)
    await source.report([Report(task, Complete(None), 0) for task in ready + last])
    assert await statuses(db) == {"Complete": 6}


async def test_a_result_that_can_not_be_kept_fails_its_task_only(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    await enqueue(db, 2)
    source = await connect(coordinator)
    one, two = await claim(source, 2)
    await source.report([Report(one, Complete(b'"\\u0000"'), 0), Report(two, Complete(b"1"), 0)])
    row = await db.tasks.get(one.id)
    assert row
    assert row["status"] == "Failed"
    assert "NUL" in row["error_message"]
    assert (await statuses(db))["Complete"] == 1


async def test_a_worker_that_was_too_slow_to_accept_is_given_the_task_again(
    coordinator: Coordinator, db: Database, connect: Any, eventually: Any
) -> None:
    source = await connect(coordinator)
    assert await source.claim(1) == []
    await enqueue(db, 1)

    async def lapsed() -> bool:
        return bool(await db.fetch("SELECT FROM shiftboss.past_attempts WHERE outcome = 'released'"))

    await eventually(lapsed)
    (task,) = await claim(source, 1)
    assert (task.params, task.attempt) == ({"n": 0}, 1)


async def test_goes_on_after_a_restart_of_the_coordinator(
    db: Database, start: StartCoordinator, connect: Any, eventually: Any
) -> None:
    """Held tasks stay held, what is reported meanwhile is not lost, and nothing counts twice."""
    first = await start()
    source = await connect(first)
    await enqueue(db, 3)
    tasks = await claim(source, 3)
    await first.stop()
    with pytest.raises(CoordinatorUnavailable):
        await source.report([Report(tasks[0], Complete(None), 1.0)])
    with pytest.raises(CoordinatorUnavailable):
        await source.beat([task.lease for task in tasks], {}, [])
    await start(port=first.port)

    async def reported() -> bool:
        try:
            return await source.report([Report(task, Complete(None), 1.0) for task in tasks]) == []
        except CoordinatorUnavailable:
            return False

    await eventually(reported)
    assert await reported()  # again, as after an answer that got lost
    assert await statuses(db) == {"Complete": 3}
    (health,) = await db.workers.health("w1")
    assert health["processed_today"] == 3
    orders = await source.beat([], {}, [])
    assert orders.known
    await enqueue(db, 1)
    await claim(source, 1)


async def test_moves_to_the_other_coordinator(db: Database, start: StartCoordinator, connect: Any) -> None:
    first, second = await start(), await start()
    source = await connect(first, second)
    await enqueue(db, 2)
    held, _ = await claim(source, 2)
    await first.stop()
    await enqueue(db, 1)
    moved = await claim(source, 1)
    assert await source.report([Report(held, Complete(None), 0), Report(moved[0], Complete(None), 0)]) == []
    orders = await source.beat([], {}, [])
    assert orders.known


async def test_several_coordinators_share_one_queue(
    db: Database, start: StartCoordinator, connect: Any
) -> None:
    first, second = await start(), await start()
    sources = [await connect(one, id=f"w{n}") for n, one in enumerate((first, second))]
    await enqueue(db, 200)

    async def work(source: CoordinatorSource) -> int:
        done = 0
        while (await statuses(db)).get("Complete", 0) < 200:
            tasks = await source.claim(10)
            if tasks:
                assert await source.report([Report(task, Complete(None), 0) for task in tasks]) == []
                done += len(tasks)
            else:
                await sleep(0.1, source.arrived)
        return done

    counts = await asyncio.gather(*map(work, sources))
    assert sum(counts) == 200
    assert all(counts)


async def test_a_lost_worker_is_out_and_its_tasks_go_to_another(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    await enqueue(db, 1)
    source = await connect(coordinator, id="dies", lease_seconds=0.5)
    (task,) = await claim(source, 1)
    other = await connect(coordinator, id="lives")
    asking = asyncio.create_task(claim(other, 1))
    while not (await db.workers.rescue())["workers_lost"]:
        await other.beat([], {}, [])
    (again,) = await asking
    assert (again.id, again.attempt) == (task.id, 2)
    (health,) = await db.workers.health("dies")
    assert health["status"] == "unhealthy"
    assert [event["worker_id"] for event in await db.events.latest(kind="worker.lost")] == ["dies"]
    orders = await source.beat([task.lease], {}, [])
    assert orders.lost == [task.lease]
    assert await source.report([Report(task, Complete(None), 0)]) == [task.id]


async def test_a_taken_name_is_refused(
    coordinator: Coordinator, connect: Any, monkeypatch: pytest.MonkeyPatch, db: Database, eventually: Any
) -> None:
    await connect(coordinator)

    async def attached() -> bool:
        row = await db.fetch_one("SELECT coordinator FROM shiftboss.sessions")
        return bool(row and row["coordinator"])

    await eventually(attached)
    monkeypatch.setattr("shiftboss.extensions.grpc.source.PATIENCE", 0.0)
    with pytest.raises(CoordinatorError, match="is connected"):
        await connect(coordinator)


async def test_waits_for_a_coordinator_that_is_not_up_yet(
    db: Database, start: StartCoordinator, unused_port: int
) -> None:
    source = CoordinatorSource([f"127.0.0.1:{unused_port}"], CoordinatorSettings())
    joining = asyncio.create_task(source.join(member()))
    await start(port=unused_port)
    await joining
    await source.leave()


async def test_why_a_task_waits_and_the_coordinators_figures(
    coordinator: Coordinator, db: Database, connect: Any, eventually: Any
) -> None:
    source = await connect(coordinator, slots=1)
    await enqueue(db, 2)
    await claim(source, 1)

    async def busy() -> str | None:
        row = await db.fetch_one("SELECT id FROM public.tasks WHERE status = 'Queued'")
        assert row
        (reason,) = await db.tasks.why(row["id"])
        assert reason.reason == "busy"
        return reason.detail if "all slots (1) of the capable workers (1)" in reason.detail else None

    assert coordinator.address in await eventually(busy, timeout=20)
    (row,) = await db.family(FleetStore).coordinators()
    assert row["workers"] == 1
    assert row["figures"]["assigned"] == 1
    assert row["figures"]["scheduling_p50_seconds"] > 0
    await coordinator.stop()
    assert await db.family(FleetStore).coordinators() == []


async def test_results_that_nobody_took_survive_the_worker(
    db: Database, start: StartCoordinator, connect: Any, tmp_path: Path
) -> None:
    """The coordinator was away, then the worker died: the next one of its name delivers, nothing runs again."""
    first = await start()
    source = await connect(first)
    await enqueue(db, 2)
    reports = [Report(task, Complete(b'"kept"'), 1.0) for task in await claim(source, 2)]
    await first.stop()
    outbox = Outbox(source, spool := Spool(tmp_path / source.spool))
    await outbox.start()
    for report in reports:
        outbox.put(report)
    await outbox.flush(0.5)
    assert len(outbox) == 2
    await outbox.stop()
    spool.close()
    again = await start(port=first.port)
    heir = CoordinatorSource([again.address], CoordinatorSettings())
    assert heir.spool == source.spool
    async with Worker(heir, Handlers(), member("w1"), spool_dir=tmp_path):
        rows = await db.fetch("SELECT status, attempts, result_data FROM public.tasks")
        assert rows == [{"status": "Complete", "attempts": 0, "result_data": "kept"}] * 2
    assert list(tmp_path.rglob("*.reports")) == []


@pytest.fixture
def other_url(server_url: str) -> Iterator[str]:
    """The database of another fleet."""
    yield from _fresh(server_url, TEMPLATE)


async def test_kept_results_wait_for_their_own_installation(
    db: Database, start: StartCoordinator, connect: Any, other_url: str, tmp_path: Path
) -> None:
    """Another fleet may answer at the address, and the coordinator may move to another one."""
    first = await start()
    source = await connect(first)
    await enqueue(db, 1)
    [task] = await claim(source, 1)
    spool = Spool(tmp_path / source.spool)
    spool.write([Report(task, Complete(b'"kept"'), 1.0)], source.identity)
    spool.close()
    await first.stop()
    async with (
        await Database.open(other_url) as elsewhere,
        Coordinator(elsewhere, CoordinatorSettings(port=first.port, require_token=False), None) as stranger,
        Worker(source_of(stranger), Handlers(), member("w1"), spool_dir=tmp_path),
    ):
        assert len(list(tmp_path.rglob("*.reports"))) == 1
    moved = await start()
    assert moved.port != first.port
    async with Worker(source_of(moved), Handlers(), member("w1"), spool_dir=tmp_path):
        rows = await db.fetch("SELECT status, attempts, result_data FROM public.tasks")
        assert rows == [{"status": "Complete", "attempts": 0, "result_data": "kept"}]
    assert list(tmp_path.rglob("*.reports")) == []


def source_of(coordinator: Coordinator) -> CoordinatorSource:
    return CoordinatorSource([coordinator.address], CoordinatorSettings())


async def test_a_locked_task_delays_only_its_own_report(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    await enqueue(db, 3)
    source = await connect(coordinator)
    tasks = await claim(source, 3)
    reports = [Report(task, Complete(b"1"), 0.1) for task in tasks]
    async with db.dedicated() as other, other.transaction():
        await other.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [tasks[0].id])
        with pytest.raises(TasksLocked) as refused:
            await source.report(reports)
        assert refused.value.ids == {tasks[0].id}
        assert await statuses(db) == {"Complete": 2, "In Progress": 1}
    assert await source.report(reports[:1]) == []
    assert await statuses(db) == {"Complete": 3}
    rows = await db.fetch("SELECT sum(completed)::int AS n FROM shiftboss.stats")
    assert rows == [{"n": 3}]


async def test_health_tells_how_much_runs_in_the_process(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    source = await connect(coordinator)
    await source.beat([], {"goroutine_count": 12}, [])
    [row] = await db.workers.health()
    assert row["goroutine_count"] == 12
    assert codec.health(row).resource_usage.goroutine_count == 12
