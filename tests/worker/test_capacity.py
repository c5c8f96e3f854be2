"""How much a worker claims ahead."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from shiftboss.app.inline import ignore
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import Claimed
from shiftboss.worker.capacity import AHEAD_BYTES, Capacity
from shiftboss.worker.executor import Executor
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.limits import ProcessLimits


@pytest.fixture
def capacity() -> Capacity:
    settings = WorkerSettings(concurrency=10)
    return Capacity(settings, ProcessLimits(settings), Executor(Handlers(), ignore), None)


@pytest.mark.parametrize(("seconds", "ahead"), [(1e-5, 2000), (0.001, 1000), (0.1, 10), (60.0, 0)])
def test_tasks_for_a_tenth_of_a_second_are_claimed_ahead(
    capacity: Capacity, seconds: float, ahead: int
) -> None:
    assert capacity.ahead() == 0, "the pace is not known yet"
    capacity.note(seconds)
    assert capacity.ahead() == ahead


def test_large_tasks_are_not_claimed_ahead_by_the_thousand(capacity: Capacity) -> None:
    capacity.note(1e-5)
    for _ in range(20):
        capacity.weigh([claimed({"text": "x" * 1_000_000})])
    assert 10 <= capacity.ahead() <= AHEAD_BYTES / 1_000_000
    for _ in range(20):
        capacity.weigh([claimed({})])
    capacity.weigh([])
    assert capacity.ahead() == 2000


def claimed(params: dict[str, str]) -> Claimed:
    now = datetime.now(UTC)
    return Claimed(
        id=uuid4(), lease=1, task_type="t", params=params, attempt=1, max_attempts=3, queue="default",
        priority=5, tenant=None, timeout=None, deadline=None, created_at=now, ready_at=now, started_at=now,
        lane=1, run_id=None, metadata=None, crashes=0,
    )  # fmt: skip
