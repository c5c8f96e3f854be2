"""The rules of the heartbeat, by a source that answers as each test needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from shiftboss.model.task import Complete, Report
from shiftboss.model.worker import Orders
from shiftboss.worker import heart as module
from shiftboss.worker.counters import Counters
from shiftboss.worker.heart import LAST, LATE, SAFE, Heart
from tests.logs import capture_logs
from tests.worker.test_outbox import claimed

FINE = Orders(True, "active", False, False, [], [])
LEASE = 100.0


class Answers:
    """A source that answers each beat with the next of these: orders, an error, or None for no answer at all."""

    def __init__(self, *answers: Orders | Exception | None) -> None:
        self.orders = asyncio.Event()
        self.stats: list[list[dict[str, Any]]] = []
        self._answers = list(answers)

    async def beat(self, leases: list[int], usage: dict[str, Any], stats: list[dict[str, Any]]) -> Orders:
        self.stats.append(stats)
        await asyncio.sleep(0)
        answer = self._answers.pop(0) if self._answers else FINE
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer


def heart(
    source: Answers, lost: list[str] | None = None, every: float = LEASE / 3, counters: Counters | None = None
) -> Heart:
    return Heart(
        source,  # type: ignore[arg-type]
        counters or Counters(),
        beat_seconds=every,
        lease_seconds=LEASE,
        leases=list,
        usage=dict,
        on_orders=lambda orders: None,
        on_lost=lambda: [] if lost is None else lost.append("lost"),
    )


async def test_it_beats_at_once_and_once_more_when_it_stops(eventually: Callable[..., Any]) -> None:
    source = Answers()
    with capture_logs() as logs:
        async with heart(source) as beating:
            await eventually(lambda: len(source.stats) == 1)
            assert beating.last_success <= time.monotonic()
        assert len(source.stats) == 2
    assert [entry for entry in logs if entry["event"] == "the event loop was blocked"] == []


async def test_it_pauses_between_beats(eventually: Callable[..., Any]) -> None:
    source = Answers()
    async with heart(source, every=0.05):
        await eventually(lambda: len(source.stats) >= 3)
        began, before = time.monotonic(), len(source.stats)
        await eventually(lambda: len(source.stats) >= before + 2)
        assert time.monotonic() - began >= 0.05


async def test_counts_are_sent_until_a_beat_succeeds(eventually: Callable[..., Any]) -> None:
    counters, source = Counters(), Answers(ValueError("no"), FINE)
    counters.add(Report(claimed(), Complete(None), 0.1))
    async with heart(source, every=0.05, counters=counters):
        await eventually(lambda: len(source.stats) >= 3)
    assert [len(stats) for stats in source.stats[:3]] == [1, 1, 0]


@pytest.mark.parametrize(("every", "pause"), [(LEASE / 3, LEASE / 20), (2.0, 2.0)])
async def test_after_a_failure_it_beats_more_often(
    eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, every: float, pause: float
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float, *wakers: asyncio.Event) -> bool:
        pauses.append(seconds)
        await asyncio.sleep(0)
        return False

    monkeypatch.setattr(module, "sleep", sleep)
    async with heart(Answers(ValueError("no")), every=every):
        await eventually(lambda: len(pauses) >= 2)
    assert pauses[:2] == [pause, every]


async def test_without_any_answer_the_alarm_is_set_from_the_start() -> None:
    beating = heart(Answers(None, None))
    assert beating.lost is False
    beating.grace = 0.05
    async with beating:
        assert beating._alarm is not None
        left = beating._alarm.when() - asyncio.get_running_loop().time()
        assert LEASE * SAFE - 30 < left <= LEASE * SAFE


async def test_a_beat_times_out_before_the_lease_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[float | None] = []
    timeout = asyncio.timeout

    def noted(seconds: float | None) -> asyncio.Timeout:
        allowed.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr(module.asyncio, "timeout", noted)
    monkeypatch.setattr(module.time, "monotonic", lambda: 1000.0)
    beating = heart(Answers())
    for since in (10.0, LEASE):
        beating.last_success = 1000.0 - since
        await beating._answer([])
    beating.lost = True  # then there is nothing left to save
    await beating._answer([])
    assert allowed == [LEASE * SAFE - 10.0, 0.05, None]


DUE = 1000.0 + LEASE * SAFE


@pytest.mark.parametrize(
    ("now", "next_alarm"),
    [
        (DUE, None),
        (DUE + 0.1, None),  # in time, more or less
        (DUE + 0.2, DUE + 0.2 + LATE),  # the loop was blocked: a beat may succeed right now
        (1000.0 + LEASE * LAST - 0.5, 1000.0 + LEASE * LAST),
        (1000.0 + LEASE * LAST, None),
        (1000.0 + LEASE, None),
    ],
)
async def test_a_late_alarm_waits_once_more_while_the_lease_lasts(
    monkeypatch: pytest.MonkeyPatch, now: float, next_alarm: float | None
) -> None:
    lost: list[str] = []
    beating, alarms = heart(Answers(), lost), list[float]()
    monkeypatch.setattr(beating, "_set_alarm", alarms.append)
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    beating.last_success = 1000.0
    beating._lose(DUE)
    assert alarms == ([] if next_alarm is None else [next_alarm])
    assert (lost, beating.lost) == (([], False) if next_alarm else (["lost"], True))
    assert LATE == 1.0
