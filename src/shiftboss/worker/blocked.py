"""What a worker reports when its event loop is blocked, in a thread, before its leases run out."""

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
    """What happened, for people."""
    return f"the event loop was blocked for {blocked.seconds:.1f} s at {blocked.where}"


def verdict(blocked: Blocked, running: Sequence[Attempt], waiting: Sequence[Claimed]) -> list[Report]:
    """The attempt at fault has crashed, its neighbours are given back unspent.

    If no handler is at fault, only what had not started is given back. The rest are suspects, which the
    process that notices the end of this one decides.
    """
    given_back = Postpone(0, f"{explain(blocked)}; another task is to blame")
    reports = [Report(task, given_back, 0.0) for task in waiting]
    if not any(attempt.task.lease == blocked.lease for attempt in running):
        return reports
    guilty = Fail(
        f"{explain(blocked)}: no other task and no heartbeat could run. Await what blocks, or declare the"
        " handler without `async`, so that it runs in a thread",
        "crashed",
    )
    now = time.monotonic()
    for attempt in running:
        outcome: Outcome = guilty if attempt.task.lease == blocked.lease else given_back
        reports.append(Report(attempt.task, outcome, now - attempt.since))
    return reports


def deliver(source: Source, reports: Sequence[Report], spool: Spool | None, seconds: float) -> None:
    """Report without the event loop; what is not taken in time stays on disk for the next process."""
    if spool is not None:
        try:
            spool.write(reports, source.identity)
        except (OSError, TypeError, ValueError) as error:
            log.warning("reports cannot be kept on disk", reason=str(error))
    try:
        source.report_apart(reports, seconds)
    except Exception as error:  # this process may end next: nothing must keep it from that
        log.warning("the reports of a blocked worker wait", reports=len(reports), reason=str(error))
        return
    if spool is not None:
        spool.clear()
