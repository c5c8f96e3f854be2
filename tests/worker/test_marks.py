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


@pytest.mark.parametrize("late", [0.05, 0.9, 9.0])
async def test_a_task_that_was_committed_late_is_found_by_the_next_claim(
    db: Database, clock: Clock, late: float
) -> None:
    """Its creation time is before the mark, because an older transaction committed after a younger one."""
    source = DatabaseSource(db, listening=False)
    await source.join(Member(id="w"))
    await db.tasks.enqueue([NewTask(task_type="t")])
    [claimed] = await source.claim(10)
    source._marks._cost[Marks.FRONT] = 10.0  # seconds: dead rows would have to be read
    await db.execute(
        "INSERT INTO tasks (task_type, created_at) VALUES ('t', %s)",
        [claimed.ready_at - timedelta(seconds=late)],
    )
    assert len(await source.claim(10)) == 1


def slow(marks: Marks) -> None:
    """Make all claims that start far back so expensive that none follows soon."""
    marks._cost[2:] = [1.0] * len(marks._cost[2:])


def far(marks: Marks, moment: datetime) -> float | None:
    """Return how many seconds before the mark the next claim starts. None: at the front."""
    taken = marks.at(marks.farthest())
    return None if taken is None else (moment - taken[1]).total_seconds()


def learn(marks: Marks, moment: datetime, count: int, seconds: float, *, dry: bool = True) -> None:
    marks.learn(marks.farthest(), {1: moment}, count, dry=dry, seconds=seconds)


def test_tasks_that_a_full_claim_finds_are_not_counted_as_its_cost(clock: Clock) -> None:
    marks, moment = Marks(), datetime.now(UTC)
    learn(marks, moment, 1, 1.0)
    slow(marks)
    for _ in range(50):
        assert far(marks, moment) == 0.1
        learn(marks, moment, 100, 0.1)  # a millisecond per task
    clock.now += 20.5
    assert far(marks, moment) is None
    learn(marks, moment, 500, 0.51)
    # twenty times the 0.01 s that were not spent on tasks
    assert marks.due(1) == pytest.approx(0.2, abs=0.02)
    clock.now += 0.25
    assert far(marks, moment) is None


def test_a_worker_that_does_not_keep_up_starts_exactly_at_its_marks(clock: Clock) -> None:
    marks, moment = Marks(), datetime.now(UTC)
    learn(marks, moment, 1, 0.5, dry=False)
    assert far(marks, moment) == 0.0
    slow(marks)
    learn(marks, moment, 1, 0.5)
    assert far(marks, moment) == 0.1


def test_claims_start_further_back_before_one_from_the_front_is_affordable(clock: Clock) -> None:
    """With millions of dead entries, a claim from the front is allowed only once in minutes."""
    marks, moment = Marks(), datetime.now(UTC)
    learn(marks, moment, 0, 5.0)
    costs = {0.1: 0.001, 1.0: 0.01, 10.0: 0.1}
    seen = dict.fromkeys(costs, 0)
    while clock.now < 1095.0:
        distance, chosen = far(marks, moment), marks.farthest()
        assert distance is not None
        seen[distance] += 1
        clock.now += costs[distance]
        marks.learn(chosen, {}, 0, dry=True, seconds=costs[distance])
        clock.now += min(marks.due(chosen) or 0.0, 0.05)
    assert seen[10.0] == pytest.approx(45, abs=5)  # every 2 seconds
    assert seen[1.0] == pytest.approx(400, abs=60)  # every 0.2 seconds
    clock.now += 10.0
    assert far(marks, moment) is None
