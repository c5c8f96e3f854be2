"""The rules of the outbox, by a source that answers as each test needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shiftboss.lifecycle import Backoff
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, TasksLocked
from shiftboss.model.task import Claimed, Complete, Fail, Report, new_id
from shiftboss.worker import outbox as module
from shiftboss.worker.outbox import LOCK_TRIES, UNSTORABLE, Outbox, send
from shiftboss.worker.spool import Spool
from tests.logs import capture_logs

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REFUSED = DatabaseError("a value", sqlstate="22P02")
NOT_NOW = DatabaseError("not now", sqlstate="P0001")
AWAY = DatabaseUnavailable("away")


def claimed() -> Claimed:
    return Claimed(new_id(), 7, "t", {}, 1, 3, "default", 5, None, None, None, NOW, NOW, NOW, 1, None, None)


def report() -> Report:
    return Report(claimed(), Complete(None), 0.1)


class Answers:
    """A source that meets each delivery with the next of these: an error, or None to accept it. Then it accepts."""

    identity = ""

    def __init__(self, *answers: Exception | None) -> None:
        self.delivered: list[Report] = []
        self.calls = 0
        self.go = asyncio.Event()
        self.go.set()
        self._answers = list(answers)

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        self.calls += 1
        await self.go.wait()
        answer = self._answers.pop(0) if self._answers else None
        if answer is not None:
            raise answer
        self.delivered += reports
        return []

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        return await self.report(reports)


class Counting(Spool):
    cleared = 0

    def clear(self) -> None:
        self.cleared += 1
        super().clear()


def outbox(source: Answers, spool: Spool | None = None) -> Outbox:
    return Outbox(source, spool)  # type: ignore[arg-type]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses after failures, which take no time here."""
    found: list[float] = []

    async def sleep(seconds: float, *wakers: asyncio.Event) -> bool:
        found.append(seconds)
        await asyncio.sleep(0)
        return wakers[0].is_set()

    monkeypatch.setattr(module, "sleep", sleep)
    return found


async def test_a_flush_waits_for_what_is_under_way(tmp_path: Path) -> None:
    source = Answers()
    source.go.clear()
    async with outbox(source, Spool(tmp_path)) as box:
        await box.flush(10)  # nothing to wait for
        box.put(report())
        flushing = asyncio.create_task(box.flush(60))
        while not source.calls:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not flushing.done()
        source.go.set()
        await asyncio.wait_for(flushing, 10)
        assert (len(source.delivered), list(tmp_path.glob("*.reports"))) == (1, [])


async def test_a_flush_writes_to_disk_what_is_late(tmp_path: Path) -> None:
    source = Answers()
    source.go.clear()
    async with outbox(source, Spool(tmp_path)) as box:
        box.put(report())
        await box.flush(0.01)
        assert len(list(tmp_path.glob("*.reports"))) == 1
        source.go.set()
        await box.flush(10)
    assert list(tmp_path.glob("*.reports")) == []


async def test_a_flush_without_a_service_writes_to_disk_at_once(tmp_path: Path) -> None:
    box = outbox(Answers(), Spool(tmp_path))
    await box.flush(60)
    assert list(tmp_path.glob("*.reports")) == []
    box.put(report())
    await box.flush(60)
    assert len(list(tmp_path.glob("*.reports"))) == 1


async def test_what_waits_when_it_stops_is_delivered_first() -> None:
    source = Answers()
    source.go.clear()
    async with outbox(source) as box:
        box.put(report())
        while not source.calls:
            await asyncio.sleep(0)
        box.put(report())
        box.request_stop()
        source.go.set()
    assert len(source.delivered) == 2


@pytest.mark.parametrize("stopped", [False, True])
async def test_what_came_before_the_start_is_delivered(stopped: bool) -> None:
    source = Answers()
    box = outbox(source)
    box.put(report())
    if stopped:
        box.request_stop()
    async with box:
        pass
    assert len(source.delivered) == 1


async def test_the_spool_is_written_while_the_database_is_away_and_cleared_once(
    tmp_path: Path, pauses: list[float], eventually: Callable[..., Any]
) -> None:
    source, spool = Answers(AWAY, AWAY), Counting(tmp_path)
    async with outbox(source, spool) as box:
        for expected in (1, 2):  # a later report clears nothing again
            box.put(report())
            await eventually(lambda n=expected: len(source.delivered) == n and not len(box))
    assert (spool.cleared, list(tmp_path.glob("*.reports"))) == (1, [])
    assert len(pauses) == 2
    assert pauses[0] < 0.26 < pauses[1]


async def test_a_report_that_is_set_aside_is_on_disk(eventually: Callable[..., Any], tmp_path: Path) -> None:
    one = report()
    box = outbox(Answers(TasksLocked([one.task.id])), Spool(tmp_path))
    box._patience = Backoff(base=600.0)
    async with box:
        box.put(one)
        await eventually(lambda: box._locked == [one])
        assert len(list(tmp_path.glob("*.reports"))) == 1


async def test_a_locked_task_is_tried_again_until_it_is_free(
    eventually: Callable[..., Any], tmp_path: Path
) -> None:
    one = report()
    locked = TasksLocked([one.task.id])
    source = Answers(locked, locked, locked)
    box = outbox(source, Spool(tmp_path))
    box._patience = Backoff(base=0.001)
    async with box:
        box.put(one)
        await eventually(lambda: source.delivered == [one] and not len(box))
        assert list(tmp_path.glob("*.reports")) == []
        assert box._patience.failures == 0  # the next lock is a new one


@pytest.mark.parametrize(("error", "calls"), [(NOT_NOW, 1), (None, LOCK_TRIES + 1), (AWAY, 8)])
async def test_how_often_reports_on_disk_are_tried(
    tmp_path: Path, pauses: list[float], error: DatabaseError | None, calls: int
) -> None:
    one = report()
    dead = Spool(tmp_path)
    dead.write([one])
    dead.close()
    error = error or TasksLocked([one.task.id])
    source = Answers(*[error] * (calls if error is not AWAY else calls - 1))
    await outbox(source, Spool(tmp_path)).redeliver(asyncio.Event())
    assert source.calls == calls
    assert len(source.delivered) == (1 if error is AWAY else 0)


async def test_nothing_is_delivered_from_disk_without_one_or_after_a_stop(tmp_path: Path) -> None:
    dead = Spool(tmp_path)
    dead.write([report()])
    dead.close()
    source, stopped = Answers(), asyncio.Event()
    await outbox(source).redeliver(asyncio.Event())
    stopped.set()
    await outbox(source, Spool(tmp_path)).redeliver(stopped)
    assert source.calls == 0


async def test_what_becomes_of_a_report_that_is_not_taken() -> None:
    one, two = report(), report()
    assert await send(Answers(NOT_NOW).report, [one]) == ([one], NOT_NOW)
    with pytest.raises(DatabaseUnavailable):
        await send(Answers(AWAY).report, [one])
    locked = TasksLocked([two.task.id])
    assert await send(Answers(locked).report, [one, two]) == ([two], locked)
    source = Answers(NOT_NOW, None, NOT_NOW)
    assert await send(source.report, [one, two]) == ([two], NOT_NOW)
    assert source.delivered == [one]


@pytest.mark.parametrize("error", [REFUSED, TypeError("no bytes")])
async def test_an_outcome_that_can_not_be_stored_becomes_a_failure(error: Exception) -> None:
    source = Answers(error)
    assert await send(source.report, [report()]) == ([], None)
    [stored] = source.delivered
    assert isinstance(stored.outcome, Fail)
    assert stored.outcome.error.startswith(UNSTORABLE)
    assert stored.outcome.retry is False
    refused = Answers(error, error)
    assert await send(refused.report, [report()]) == ([], None)
    assert (refused.delivered, refused.calls) == ([], 2)


async def test_a_report_of_a_lost_lease_is_over_and_logged() -> None:
    accepted, late = report(), report()

    async def deliver(reports: Sequence[Report]) -> list[UUID]:
        return [one.task.id for one in reports if one is late]

    with capture_logs() as said:
        assert await send(deliver, [accepted]) == ([], None)
        assert said == []
        assert await send(deliver, [accepted, late]) == ([], None)
    assert [(one["event"], one["tasks"]) for one in said] == [
        ("lease lost before the report", [str(late.task.id)])
    ]
