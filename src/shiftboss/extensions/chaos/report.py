"""The report of a run, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shiftboss import __version__
from shiftboss.db import Database

_KINDS = """
SELECT substring(task_type FROM 7) AS kind, status, count(*) AS n FROM shiftboss_chaos.ours
GROUP BY 1, 2 ORDER BY 1, 2
"""
_OUTCOMES = """
SELECT a.outcome, count(*) AS n FROM shiftboss.past_attempts a JOIN shiftboss_chaos.ours t ON t.id = a.task_id
GROUP BY 1 ORDER BY 1
"""
_COUNTS = """
SELECT (SELECT count(*) FROM shiftboss_chaos.changes) AS changes,
    (SELECT count(*) FROM shiftboss_chaos.claims) AS claims,
    (SELECT count(*) FROM shiftboss_chaos.ledger) AS effects, current_setting('server_version') AS server,
    current_setting('fsync') AS fsync
"""


async def figures(db: Database, seconds: float) -> dict[str, Any]:
    """Return the statistics of a run from the tables that the checks have prepared."""
    kinds: dict[str, dict[str, int]] = {}
    for row in await db.fetch(_KINDS):
        kinds.setdefault(row["kind"], {})[row["status"]] = row["n"]
    tasks = sum(count for by_status in kinds.values() for count in by_status.values())
    return {
        "version": __version__,
        "seconds": round(seconds, 1),
        "tasks": tasks,
        "per_second": round(tasks / seconds, 1),
        "kinds": kinds,
        "lost_attempts_and_others": {row["outcome"]: row["n"] for row in await db.fetch(_OUTCOMES)},
        **(await db.fetch(_COUNTS))[0],
    }


def text(report: dict[str, Any]) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: dict[str, Any]) -> Iterator[str]:
    verdict = "clean" if report["clean"] else "BROKEN"
    yield f"chaos, seed {report['seed']}: {verdict}"
    yield f"{report['tasks']} tasks in {report['seconds']} s, {report['per_second']} a second"
    yield f"on PostgreSQL {report['server']}, fsync {report['fsync']}"
    yield f"seen: {report['claims']} claims, {report['changes']} changes, {report['effects']} effects"
    yield f"faults: {sum(report['faults'].values())} ({_counts(report['faults'])})"
    if report["faults_left_out"]:
        yield f"faults not injected: {', '.join(report['faults_left_out'])}"
    yield f"attempts that did not complete: {_counts(report['lost_attempts_and_others'])}"
    yield f"process ends: {_counts(report['process_ends'])}"
    for kind, statuses in report["kinds"].items():
        yield f"  {kind}: {_counts(statuses)}"
    for promise in report["promises"]:
        yield f"{'ok    ' if not promise['broken'] else 'BROKEN'} {promise['promise']}"
        if promise["broken"]:
            yield f"       {promise['broken']} times, for example:"
            yield from (f"       {example}" for example in promise["examples"])
    if not report["clean"]:
        minutes = report["options"]["minutes"]
        yield f"to repeat this run: shiftboss chaos --seed {report['seed']} --minutes {minutes}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
