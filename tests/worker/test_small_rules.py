"""Small rules of the executor and the heart that no other test would miss. Each was found by a mutant that survived."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from weakref import ref

from shiftboss.model.task import Fail
from shiftboss.model.worker import Orders
from shiftboss.worker.counters import Counters
from shiftboss.worker.executor import Attempt, Executor, encode
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.heart import LAST, SAFE, Heart


class Silent:
    """A source whose beats land, and that sends no orders."""

    orders = asyncio.Event()

    async def beat(self, *given: Any) -> Orders:
        return Orders(True, "active", False, False, [], [])


def heart(lost: list[str], lease: float = 100.0) -> Heart:
    return Heart(
        Silent(),  # type: ignore[arg-type]
        Counters(),
        beat_seconds=lease / 3,
        lease_seconds=lease,
        leases=list,
        usage=dict,
        on_orders=lambda orders: None,
        on_lost=lambda: lost.append("lost"),
    )


async def test_the_alarm_rings_before_the_lease_ends_and_not_after_a_stop() -> None:
    lost: list[str] = []
    async with heart(lost) as beating:
        alarm = beating._alarm
        assert alarm is not None
        left = alarm.when() - asyncio.get_running_loop().time()
        assert 100 * SAFE - 30 < left <= 100 * SAFE
        assert LAST < 1
    assert beating._alarm is not None
    assert beating._alarm.cancelled()
    assert lost == []


def test_a_result_that_is_no_json_fails_for_good() -> None:
    outcome = encode("task", object())
    assert isinstance(outcome, Fail)
    assert outcome.retry is False


async def test_the_time_before_a_suspension_counts_towards_the_timeout() -> None:
    executor = Executor(Handlers(), lambda *given: None)
    loop = asyncio.get_running_loop()
    task: Any = SimpleNamespace(timeout=timedelta(seconds=100))
    handler: Any = SimpleNamespace(timeout=None)
    attempt = Attempt(task, time.monotonic())
    attempt.timer = first = loop.call_later(100, lambda: None)
    ran_before: Any = SimpleNamespace(ran=40.0)
    executor._count_time(ref(attempt), handler, ran_before)
    assert first.cancelled()
    assert attempt.timer is not None
    assert 30 < attempt.timer.when() - loop.time() <= 60
    kept = attempt.timer
    task.timeout = None  # then there is nothing to count towards
    executor._count_time(ref(attempt), handler, ran_before)
    assert attempt.timer is kept
    kept.cancel()
