"""The reports of a worker whose event loop is blocked, sent from a thread before its leases expire."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shiftboss.log import get_logger
from shiftboss.model.task import Claimed, Fail, Outcome, Postpone, Report
from shiftboss.worker.executor import Attempt
from shiftboss.worker.source import Source
from shiftboss.worker.spool import Spool
from shiftboss.worker.watchdog import Blocked

log = get_logger(__name__)


def explain(blocked: Blocked) -> str:
    """Describe the block in one sentence."""
    return f"the event loop was blocked for {blocked.seconds:.1f} s at {blocked.where}"


def verdict(blocked: Blocked, running: Sequence[Attempt], waiting: Sequence[Claimed]) -> list[Report]:
    """Report the guilty attempt as crashed, and give back all others without spending an attempt.

    If no handler is at fault, only tasks that had not started are given back. The others are suspects: the
    process that notices the end of this one decides about them.
    """
    given_back = Postpone(0, f"{explain(blocked)}; another task is to blame")
    reports = [Report(task, given_back, 0.0) for task in waiting]
    if not any(attempt.task.lease == blocked.lease for attempt in running):
        return reports
    guilty = Fail(
        f"{explain(blocked)}: no other task and no heartbeat could run. Await the blocking call, or declare"
        " the handler without `async`, so that it runs in a thread",
        "crashed",
    )
    now = time.monotonic()
    for attempt in running:
        outcome: Outcome = guilty if attempt.task.lease == blocked.lease else given_back
        reports.append(Report(attempt.task, outcome, now - attempt.since))
    return reports


def deliver(source: Source, reports: Sequence[Report], spool: Spool | None, seconds: float) -> None:
    """Send reports without the event loop. If that fails, they stay on disk for the next process."""
    if spool is not None:
        try:
            spool.write(reports, source.identity)
        except (OSError, TypeError, ValueError) as error:
            log.warning("cannot write reports to disk", reason=str(error))
    try:
        source.report_apart(reports, seconds)
    except Exception as error:  # must not prevent the end of this process
        log.warning("cannot send the reports of a blocked worker", reports=len(reports), reason=str(error))
        return
    if spool is not None:
        spool.clear()
