"""Marks: claims start where the queue was empty before, and still find what was committed late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from shiftboss.worker import source as module
from shiftboss.worker.source import DatabaseSource, Marks


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


async def test_a_task_that_was_committed_late_is_found_by_the_next_claim(db: Database, clock: Clock) -> None:
    """Its creation time is before the mark, because an older transaction committed after a younger one."""
    source = DatabaseSource(db, listening=False)
    await source.join(Member(id="w"))
    await db.tasks.enqueue([NewTask(task_type="t")])
    [claimed] = await source.claim(10)  # a full claim
    source._marks._cost = 1.0  # as if it had taken a second, so that no other full claim follows soon
    await db.execute(
        "INSERT INTO tasks (task_type, created_at) VALUES ('t', %s)",
        [claimed.ready_at - timedelta(milliseconds=50)],
    )
    assert source._marks.take() is not None
    assert len(await source.claim(10)) == 1


def test_tasks_that_a_full_claim_finds_are_not_counted_as_its_cost(clock: Clock) -> None:
    marks, moment = Marks(), datetime.now(UTC)
    marks.learn({1: moment}, 1, dry=True, used=False, seconds=0.01)
    marks.learn({1: moment}, 100, dry=True, used=True, seconds=0.1)  # a millisecond per task
    for _ in range(50):
        marks.learn({1: moment}, 100, dry=True, used=True, seconds=0.1)
    marks.learn({1: moment}, 500, dry=True, used=False, seconds=0.51)
    assert marks.due() == pytest.approx(0.2, abs=0.02)  # twenty times the 0.01 s that were not spent on tasks
    clock.now += 0.25
    assert marks.take() is None


def test_a_worker_that_does_not_keep_up_starts_exactly_at_its_marks(clock: Clock) -> None:
    marks, moment = Marks(), datetime.now(UTC)
    marks.learn({1: moment}, 1, dry=False, used=False, seconds=0.5)
    assert marks.take() == {1: moment}
    marks.learn({1: moment}, 1, dry=True, used=True, seconds=0.5)
    assert marks.take() == {1: moment - Marks.LATE}
