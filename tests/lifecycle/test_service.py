"""The lifecycle that all services share."""

from __future__ import annotations

import asyncio

import pytest

from shiftboss.lifecycle import Backoff, Service, sleep, ticks


class Loop(Service):
    grace = 0.2

    def __init__(self, fail_early: bool = False, fail_late: bool = False, deaf: bool = False) -> None:
        super().__init__()
        self.fail_early, self.fail_late, self.deaf = fail_early, fail_late, deaf
        self.rounds = 0
        self.cancelled = False

    async def run(self) -> None:
        if self.fail_early:
            raise ValueError("early")
        self.ready()
        if self.fail_late:
            await self.stopping.wait()
            raise ValueError("late")
        try:
            if self.deaf:
                await asyncio.Event().wait()
            async for _ in ticks(0.001, self.stopping):
                self.rounds += 1
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_start_returns_when_ready_and_stop_ends_it() -> None:
    service = Loop()
    async with service:
        assert service.running
        await service.start()  # a second start changes nothing
    assert not service.running
    assert service.rounds >= 1
    await service.stop()
    await service.start()
    assert service.running
    await service.stop()


async def test_a_stop_before_the_start_stands() -> None:
    service = Loop()
    service.request_stop()
    await service.start()
    await asyncio.wait_for(service.wait(), 5)
    assert not service.running


async def test_who_watches_hears_of_an_end_that_nobody_asked_for() -> None:
    heard: list[Service] = []
    wanted, unwanted = Loop(deaf=True), Loop(deaf=True)
    for service in (wanted, unwanted):
        await service.start()
        service.watch(heard.append)
    await wanted.stop()
    assert unwanted._task is not None
    unwanted._task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unwanted.wait()
    await asyncio.sleep(0)
    assert heard == [unwanted]


async def test_an_error_before_ready_leaves_through_start() -> None:
    with pytest.raises(ValueError, match="early"):
        await Loop(fail_early=True).start()


async def test_a_late_error_is_seen_by_wait_and_not_by_stop() -> None:
    service = Loop(fail_late=True)
    await service.start()
    await service.stop()
    with pytest.raises(ValueError, match="late"):
        await service.wait()


async def test_one_that_does_not_listen_is_cancelled_after_the_grace_time() -> None:
    service = Loop(deaf=True)
    await service.start()
    await service.stop()
    assert service.cancelled


async def test_sleep_ends_early_for_any_of_its_events() -> None:
    one, other = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().call_soon(other.set)
    assert await sleep(60, one, other)
    assert not await sleep(0.001, one)


def test_backoff_doubles_to_its_maximum_and_resets() -> None:
    backoff = Backoff(base=1, maximum=8, jitter=0)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 8, 8]
    backoff.reset()
    assert backoff.next() == 1
    jittered = [Backoff(base=1, jitter=0.25).next() for _ in range(100)]
    assert all(0.75 <= delay <= 1.25 for delay in jittered)
    assert len(set(jittered)) > 1
