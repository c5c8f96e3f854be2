"""The rules of the executor, one attempt at a time and without a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from shiftboss.app.inline import InlineSteps, ignore, inline_claim
from shiftboss.db import Database
from shiftboss.model.codec import MARK, Sealed
from shiftboss.model.errors import Defer
from shiftboss.model.step import LeaseLost
from shiftboss.model.task import Cancelled, Complete, Fail, Outcome, Postpone
from shiftboss.worker import executor as module
from shiftboss.worker.blocking import SyncContext
from shiftboss.worker.context import Context
from shiftboss.worker.executor import UNKNOWN_DELAY, Attempt, Executor, Stop, _stopped, classify
from shiftboss.worker.handlers import Handler, Handlers
from tests.worker.test_outbox import claimed


def executor(*handlers: Handler, **terms: Any) -> Executor:
    known = Handlers()
    for handler in handlers:
        known.add(handler)
    return Executor(known, ignore, **terms)


async def attempted(made: Executor, attempt: Attempt) -> Outcome:
    """As a worker does: in a task of its own."""

    async def run() -> None:
        outcomes.append(await made.run(attempt))

    outcomes: list[Outcome] = []
    attempt.handle = asyncio.create_task(run())
    await attempt.handle
    await made.close()
    return outcomes[0]


async def test_a_task_without_a_handler_waits_for_another_worker() -> None:
    outcome = await attempted(executor(), Attempt(claimed(), time.monotonic()))
    assert outcome == Postpone(UNKNOWN_DELAY, "no handler for t on this worker")


def test_without_batches_the_free_places_are_those_that_nobody_has() -> None:
    made = executor()
    assert [made.free(running, 4) for running in (0, 1, 4)] == [4, 3, 0]
    assert [made.fits(claimed(), running, 4) for running in (0, 3, 4)] == [True, True, False]


def test_a_task_that_joins_a_batch_fits_beside_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    made = executor()
    monkeypatch.setattr(made.batches, "gathers", lambda handler: True)
    assert made.fits(claimed(), 4, 4) is True


async def test_a_handler_that_ignores_its_stop_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    started, release = asyncio.Event(), asyncio.Event()
    told: list[tuple[Attempt, Outcome]] = []

    async def deaf() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                started.set()
                await release.wait()

    made = executor(Handler.of(deaf, "deaf", {}), on_stopped=lambda *given: told.append(given))
    attempt = Attempt(inline_claim(made._handlers.named("deaf")), time.monotonic())
    running = asyncio.create_task(attempted(made, attempt))
    await started.wait()
    try:
        made.stop(attempt, "cancel")
        made.stop(attempt, "timeout")  # the first reason counts
        await eventually(lambda: told == [(attempt, Cancelled())])
        assert made.abandoned == 1
    finally:
        release.set()
        await running


async def test_steps_that_are_given_go_before_those_of_the_database(db: Database) -> None:
    steps: Any = InlineSteps()
    assert executor(db=db, steps=steps)._steps is steps
    assert executor(db=db)._writer is not None


async def test_an_engine_runs_the_handlers_that_name_it() -> None:
    engine: Any = SimpleNamespace(name="far")
    far: Any = SimpleNamespace(engine="far")
    near: Any = SimpleNamespace(engine=None)
    made = executor(engine=engine)
    assert made._place(far) is engine
    assert made._place(near) is made._children
    for other in (executor(), executor(engine=SimpleNamespace(name="other"))):
        with pytest.raises(Defer):
            other._place(far)


def twice(ctx: SyncContext, n: int) -> int:
    return 2 * n


def of_thread(ctx: SyncContext) -> str:
    ctx.wait(asyncio.sleep(0))  # in the worker's event loop
    return type(ctx).__name__


async def of_loop(ctx: Context) -> str:
    return type(ctx).__name__


async def test_a_child_process_ends_with_the_executor() -> None:
    made = executor(Handler.of(twice, "twice", {"mode": "process"}))
    attempt = Attempt(inline_claim(made._handlers.named("twice"), {"n": 4}), time.monotonic())
    assert await attempted(made, attempt) == Complete(b"8")
    assert made._children._idle == []
    assert attempt.context is None  # the child has its own


@pytest.mark.parametrize(("function", "kind"), [(of_thread, b'"SyncContext"'), (of_loop, b'"Context"')])
async def test_each_kind_of_handler_gets_its_kind_of_context(function: Any, kind: bytes) -> None:
    made = executor(Handler.of(function, "which", {}))
    attempt = Attempt(inline_claim(made._handlers.named("which")), time.monotonic())
    assert await attempted(made, attempt) == Complete(kind)


SEALED = Sealed({MARK: "12345678rest"})


@pytest.mark.parametrize(
    ("params", "metadata", "waits"),
    [
        (SEALED, None, True),
        ({"n": SEALED}, {"shiftboss.results": {"n": 0}}, True),
        ({"n": 3}, {"shiftboss.results": {"n": 0}}, False),
        ({"n": 3}, None, False),
    ],
)
async def test_a_worker_without_the_key_leaves_the_task_to_others(
    params: dict[str, Any], metadata: dict[str, Any] | None, waits: bool
) -> None:
    async def plain(n: int) -> int:
        return n

    made = executor(Handler.of(plain, "plain", {}))
    task = inline_claim(made._handlers.named("plain"), params)._replace(metadata=metadata)
    outcome = await attempted(made, Attempt(task, time.monotonic()))
    if waits:
        assert isinstance(outcome, Postpone)
        assert outcome.seconds == UNKNOWN_DELAY
    else:
        assert outcome == Complete(b"3")


def test_what_an_error_makes_of_an_attempt() -> None:
    deferred = classify(Attempt(claimed(), 0.0), Defer("busy", -3.0))
    assert isinstance(deferred, Postpone)
    assert (deferred.seconds, deferred.reason) == (0.0, "busy")
    failed = classify(Attempt(claimed(), 0.0), ValueError("boom"))
    assert isinstance(failed, Fail)
    assert "boom" in failed.error
    attempt = Attempt(claimed(), 0.0)
    assert classify(attempt, LeaseLost("gone")) == Postpone(0, "its worker stopped")
    assert attempt.stopped == "lost"
    attempt = Attempt(claimed(), 0.0)
    classify(attempt, BaseExceptionGroup("both", [LeaseLost("gone"), LeaseLost("gone")]))
    assert attempt.stopped == "lost"
    attempt = Attempt(claimed(), 0.0)
    mixed = classify(attempt, BaseExceptionGroup("both", [LeaseLost("gone"), ValueError("boom")]))
    assert (type(mixed), attempt.stopped) == (Fail, None)


@pytest.mark.parametrize("why", ["stop", "lost"])
def test_a_stopped_attempt_goes_back(why: Stop) -> None:
    attempt = Attempt(claimed(), 0.0)
    attempt.stopped = why
    assert _stopped(attempt, None) == Postpone(0, "its worker stopped")
