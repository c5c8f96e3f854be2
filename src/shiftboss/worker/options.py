"""Options of a task decorator: unknown ones are refused by name, limits are checked and passed on."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler

#: What other task queues call it.
ELSEWHERE = {
    "max_retries": "max_attempts (attempts count the first one as well: 3 retries are max_attempts=4)",
    "retries": "max_attempts (attempts count the first one as well)",
    "retry": "max_attempts, retry_on and backoff",
    "autoretry_for": "retry_on",
    "dont_autoretry_for": "give_up_on",
    "throws": "give_up_on",
    "retry_when": "retry_on",
    "retry_backoff": "backoff",
    "retry_delay": "backoff",
    "default_retry_delay": "backoff",
    "min_backoff": "backoff",
    "retry_backoff_max": "backoff_max",
    "max_backoff": "backoff_max",
    "time_limit": "timeout",
    "soft_time_limit": "timeout",
    "rate_limit": "rate and rate_period",
    "concurrency": "max_running",
    "unique": "dedup_key",
    "queue_name": "queue",
    "delay": "`.options(delay=…)` when you enqueue it",
    "countdown": "`.options(delay=…)` when you enqueue it",
    "eta": "`.options(run_at=…)` when you enqueue it",
}


def refuse_unknown(task: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise for the first option that is not `known`, and name the right one."""
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        meant = ELSEWHERE.get(name) or (near[0] if near else None)
        right = f"use {meant}" if meant else f"options are {', '.join(sorted(known))}"
        raise UsageError(f"task {task} has no option {name!r}: {right}")


def check_engine(task: str, terms: Mapping[str, Any]) -> None:
    """Refuse what an engine cannot run, and resources that nothing would be asked for."""
    asked = [name for name in ("cpus", "gpus", "memory") if terms.get(name) is not None]
    if terms.get("engine") is None:
        if asked:
            raise UsageError(f"{task}: {asked[0]} is asked of an engine", hint="name one: engine=…")
        return
    for name in asked:
        value = terms[name]
        if not isinstance(value, int | float) or value < 0:
            raise UsageError(f"{task}: {name} must be a number of at least 0, not {value!r}")
    if terms.get("batch") is not None:
        raise UsageError(f"{task}: a batch handler cannot run in an engine")
    if terms.get("mode") not in (None, "process"):
        raise UsageError(f"{task}: mode={terms['mode']!r} does not go with an engine", hint="leave out mode")


def check_limits(handler: Handler) -> None:
    """Refuse limits in code that the database would refuse when a worker starts."""
    for name, least in (("max_running", 0), ("max_per_key", 1), ("rate", 1)):
        value = getattr(handler, name)
        if value is not None and (not isinstance(value, int) or value < least):
            raise UsageError(
                f"{handler.name}: {name} must be a whole number of at least {least}, not {value!r}"
            )
    if handler.rate_period is not None and (handler.rate is None or handler.rate_period.total_seconds() <= 0):
        raise UsageError(
            f"{handler.name}: rate_period is the period of rate", hint="rate=100, rate_period=60"
        )
    if handler.rate_per not in (None, "all", "key", "tenant") or (handler.rate_per and handler.rate is None):
        raise UsageError(
            f"{handler.name}: rate_per={handler.rate_per!r} does not go with rate={handler.rate!r}",
            hint='rate=100, rate_per="key" or "tenant"',
        )
    if handler.rate_per == "key" and handler.concurrency_key is None:
        raise UsageError(
            f"{handler.name}: a rate per key needs a concurrency_key",
            hint="concurrency_key=lambda user_id, **_: str(user_id)",
        )
    if handler.max_per_key is not None and handler.concurrency_key is None:
        raise UsageError(
            f"{handler.name}: max_per_key needs a concurrency_key",
            hint="concurrency_key=lambda user_id, **_: str(user_id)",
        )


def limits(handler: Handler) -> dict[str, Any]:
    """The limits in code of one task type, as the database takes them."""
    names = ("name", "max_running", "max_per_key", "rate", "rate_period", "rate_per")
    return {name: value for name in names if (value := getattr(handler, name)) is not None}
