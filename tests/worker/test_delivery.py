"""Results on their way to the database: refused, late, or by another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from shiftboss.db import Database
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.task import Claimed, Complete, Fail, NewTask, Postpone, Report
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.outbox import Outbox
from shiftboss.worker.source import DatabaseSource
from shiftboss.worker.spool import Spool
from tests.conftest import admin
from tests.logs import capture_logs
from tests.worker.conftest import StartWorker
from tests.worker.test_runtime import enqueue, finished


@asynccontextmanager
async def setting(db: Database, name: str, value: str) -> AsyncIterator[None]:
    """A setting of our role in this database; its connections are made again to see it."""
    database = db.url.rpartition("/")[2]
    ours = f"ROLE {urlsplit(db.url).username} IN DATABASE {database}"
    renew = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    admin(db.url, f"ALTER {ours} SET {name} = '{value}'")
    admin(db.url, renew)
    try:
        yield
    finally:
        admin(db.url, f"ALTER {ours} RESET {name}")
        admin(db.url, renew)


async def claimed(db: Database, count: int = 1) -> list[Claimed]:
    await db.tasks.enqueue([NewTask(task_type="x") for _ in range(count)])
    return await db.tasks.claim("w1", count)


async def statuses(db: Database, tasks: Sequence[Claimed]) -> list[str]:
    rows = await db.fetch("SELECT id, status FROM tasks WHERE id = ANY(%s)", [[task.id for task in tasks]])
    by_id = {row["id"]: row["status"] for row in rows}
    return [by_id[task.id] for task in tasks]


async def test_a_read_only_database_gets_the_results_later(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any]
) -> None:
    handlers = Handlers()
    started, go = asyncio.Event(), asyncio.Event()

    @handlers.task("long")
    async def long() -> str:
        started.set()
        await go.wait()
        return "kept"

    async with start_worker(handlers) as worker:
        id = await enqueue(db, "long")
        await started.wait()
        with capture_logs() as logs:
            async with setting(db, "default_transaction_read_only", "on"):
                go.set()
                await eventually(lambda: [e for e in logs if "read-only" in e.get("reason", "")
                                          and e["event"] == "cannot deliver reports, retrying"])  # fmt: skip
                assert len(worker._outbox) == 1
        async with await Database.open(db.url) as fresh:
            row = await finished(fresh, id)
    assert (row["status"], row["result_data"], row["attempts"]) == ("Complete", "kept", 0)


# A pooler keeps sessions that were opened before the setting was made.
@pytest.mark.session
@pytest.mark.parametrize(
    ("name", "value"), [("statement_timeout", "300"), ("lock_timeout", "300")], ids=["57014", "55P03"]
)
async def test_a_statement_that_takes_too_long_is_tried_again(
    db: Database, eventually: Callable[..., Any], name: str, value: str
) -> None:
    [task] = await claimed(db)
    async with setting(db, name, value):
        outbox = Outbox(DatabaseSource(db))
        with capture_logs() as logs:
            async with outbox, db.dedicated() as other:
                async with other.transaction():
                    await other.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [task.id])
                    outbox.put(Report(task, Complete(b'"kept"'), 0.1))
                    await eventually(
                        lambda: [e for e in logs if e["event"] == "cannot deliver reports, retrying"]
                    )
                await outbox.flush(10)
        row = await db.tasks.get(task.id)
    assert row is not None
    assert (row["status"], row["result_data"]) == ("Complete", "kept")


async def test_one_report_that_can_not_be_stored_takes_nothing_along(db: Database) -> None:
    tasks = await claimed(db, 4)
    odd = [Complete(b"not json"), Fail("\ud800"), Postpone(1e300, "x"), Complete(b"1")]
    async with Outbox(DatabaseSource(db)) as outbox:
        for task, outcome in zip(tasks, odd, strict=True):
            outbox.put(Report(task, outcome, 0.1))
        await outbox.flush(10)
        assert len(outbox) == 0
    assert await statuses(db, tasks) == ["Failed", "Failed", "Failed", "Complete"]


async def test_one_report_that_must_wait_holds_up_nobody(
    db: Database, eventually: Callable[..., Any]
) -> None:
    tasks = await claimed(db, 3)
    await db.execute(
        "CREATE FUNCTION grumble() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'not now'; END$$"
    )
    await db.execute(
        "CREATE TRIGGER grumble BEFORE UPDATE ON tasks FOR EACH ROW"
        f" WHEN (NEW.id = '{tasks[0].id}') EXECUTE FUNCTION grumble()"
    )
    async with Outbox(DatabaseSource(db)) as outbox:
        for task in tasks:
            outbox.put(Report(task, Complete(None), 0.1))

        async def others() -> bool:
            return await statuses(db, tasks) == ["In Progress", "Complete", "Complete"]

        await eventually(others)
        await db.execute("DROP TRIGGER grumble ON tasks")
        await outbox.flush(10)
    assert await statuses(db, tasks) == ["Complete"] * 3


class Hung(DatabaseSource):
    """Takes reports and never answers."""

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        await asyncio.Event().wait()
        return []


async def test_what_a_hung_database_does_not_take_is_on_disk(db: Database, tmp_path: Path) -> None:
    tasks = await claimed(db, 2)
    outbox = Outbox(Hung(db), Spool(tmp_path))
    await outbox.start()
    outbox.put(Report(tasks[0], Complete(None), 0.1))
    while not outbox._sending:
        await asyncio.sleep(0)
    outbox.put(Report(tasks[1], Complete(None), 0.1))
    outbox.grace = 0.1
    await outbox.stop()
    assert outbox._spool is not None
    outbox._spool.close()
    with Spool(tmp_path).left_behind() as kept:
        assert [report.task.id for report in kept[""]] == [task.id for task in tasks]


async def test_a_kept_report_that_is_refused_does_not_keep_the_worker_from_starting(
    db: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    tasks = await claimed(db, 2)
    dead = Spool(tmp_path)
    dead.write([Report(tasks[0], Complete(b"no json"), 0.1), Report(tasks[1], Complete(b"1"), 0.1)])
    with dead._path.open("ab") as file:
        file.write(b'[1]\n{"task": {"id": 5}}\n\xff\n')
    dead.close()
    async with start_worker(Handlers(), "w2", spool_dir=tmp_path):
        assert await statuses(db, tasks) == ["Failed", "Complete"]
    assert list(tmp_path.iterdir()) == []


async def test_workers_that_start_together_share_what_was_left(
    db: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    tasks = await claimed(db, 20)
    for task in tasks:
        dead = Spool(tmp_path)
        dead.write([Report(task, Complete(None), 0.1)])
        dead.close()
    (tmp_path / "1-1.lock").touch()  # of a process that was killed with nothing to report

    async def start(name: str) -> None:
        async with start_worker(Handlers(), name, spool_dir=tmp_path):
            pass

    await asyncio.gather(*(start(f"s{n}") for n in range(6)))
    assert await statuses(db, tasks) == ["Complete"] * 20
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_goes_while_we_look_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1-1.reports").touch()
    mine = Spool(tmp_path)
    look = Path.glob

    def late(self: Path, pattern: str) -> list[Path]:
        found = list(look(self, pattern))
        (tmp_path / "1-1.reports").unlink()
        return found

    monkeypatch.setattr(Path, "glob", late)
    with mine.left_behind() as kept:
        assert kept == {}


async def test_a_claim_under_way_takes_nothing_after_the_leave(
    db: Database, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = Handlers()
    started, slow = asyncio.Event(), asyncio.Event()
    under_way: list[asyncio.Future[list[Claimed]]] = []

    @handlers.task("long")
    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    claim = DatabaseSource.claim

    async def late(source: DatabaseSource, limit: int) -> list[Claimed]:
        await asyncio.sleep(0.5)
        return await claim(source, limit)

    async def slowly(source: DatabaseSource, limit: int) -> list[Claimed]:
        if not started.is_set():
            return await claim(source, limit)
        # As in the database: who gives up waiting does not undo what it does.
        under_way.append(asyncio.ensure_future(late(source, limit)))
        slow.set()
        return await asyncio.shield(under_way[-1])

    monkeypatch.setattr(DatabaseSource, "claim", slowly)
    async with start_worker(handlers, grace_seconds=0.01):
        id = await enqueue(db, "long")
        await started.wait()
        await slow.wait()
    await asyncio.wait(under_way)
    row = await db.tasks.get(id)
    assert row is not None
    assert (row["status"], row["attempts"]) == ("Queued", 0)


@pytest.mark.parametrize("part", ["_outbox", "_heart", "_progress"])
async def test_a_worker_does_not_outlive_its_parts(
    db: Database, start_worker: StartWorker, part: str
) -> None:
    handlers = Handlers()
    started, ended = asyncio.Event(), asyncio.Event()

    @handlers.task("long")
    async def long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with start_worker(handlers) as worker:
        id = await enqueue(db, "long")
        await started.wait()
        getattr(worker, part)._task.cancel()
        await asyncio.wait_for(ended.wait(), 10)
        with pytest.raises(ShiftbossError, match="ended unexpectedly"):
            await asyncio.wait_for(worker.wait(), 20)
    row = await db.tasks.get(id)
    assert row is not None
    assert (row["status"], row["attempts"]) == ("Queued", 0)
