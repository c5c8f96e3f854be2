"""The pause before the next attempt, from a worker that is fed by a coordinator."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shiftboss.app.inline import inline_claim
from shiftboss.db import Database
from shiftboss.extensions.grpc import codec, messages
from shiftboss.extensions.grpc.store import EndedAttempt, FleetStore
from shiftboss.model.task import Fail, NewTask, Report
from shiftboss.worker.handlers import Handler


@pytest.mark.parametrize(
    ("after", "expected"), [(None, 0.0), (90.0, 90.0), (0.0, messages.AT_ONCE), (1e9, messages.LONGEST)]
)
def test_the_pause_goes_over_the_wire(after: float | None, expected: float) -> None:
    task = inline_claim(Handler(name="t", function=print, mode="thread"))
    message = messages.completion(Report(task, Fail("boom", after=after), 1.0))
    [ended] = codec.ended("w", [message], {})
    assert (ended.outcome, ended.delay, ended.final) == ("failed", expected, False)


@pytest.mark.parametrize(("delay", "pause"), [(90.0, 90), (0.0, 30)])
async def test_a_report_without_a_pause_takes_the_backoff(db: Database, delay: float, pause: int) -> None:
    task_of = NewTask(task_type="t", backoff=timedelta(seconds=30), backoff_factor=1)
    [made] = await db.tasks.enqueue([task_of])
    [task] = await db.tasks.claim("w")
    await db.family(FleetStore).report(
        [EndedAttempt("w", str(made.id), task.lease, "failed", "boom", 1.0, delay, False)]
    )
    row = await db.tasks.get(made.id)
    assert row is not None
    assert row["status"] == "Queued"
    assert 0.7 * pause < (row["run_at"] - row["updated_at"]).total_seconds() < 1.3 * pause
