"""Validation of the options of a task decorator."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shiftboss.model.errors import UsageError
from shiftboss.model.terms import KEYS, fields, is_template

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler

#: Names that other task queues use, and what to use here.
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
    """Raise UsageError for the first option that is not `known`, and suggest the right one."""
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        meant = ELSEWHERE.get(name) or (near[0] if near else None)
        right = f"use {meant}" if meant else f"the options are {', '.join(sorted(known))}"
        raise UsageError(f"task {task} has no option {name!r}: {right}")


def check_engine(task: str, terms: Mapping[str, Any]) -> None:
    """Raise UsageError for options that do not work with an engine, or only with one."""
    asked = [name for name in ("cpus", "gpus", "memory") if terms.get(name) is not None]
    if terms.get("engine") is None:
        if asked:
            raise UsageError(f"{task}: {asked[0]} needs an engine", hint='set one: engine="name"')
        return
    for name in asked:
        value = terms[name]
        if not isinstance(value, int | float) or value < 0:
            raise UsageError(f"{task}: {name} must be a number of at least 0, not {value!r}")
    if terms.get("batch") is not None:
        raise UsageError(f"{task}: a batch handler cannot run in an engine")
    if terms.get("mode") not in (None, "process"):
        raise UsageError(f"{task}: mode={terms['mode']!r} does not work with an engine", hint="omit mode")


def check_limits(handler: Handler) -> None:
    """Raise UsageError for limits that the database would reject when a worker starts."""
    for name, least in (("max_running", 0), ("max_per_key", 1), ("rate", 1)):
        value = getattr(handler, name)
        if value is not None and (not isinstance(value, int) or value < least):
            raise UsageError(
                f"{handler.name}: {name} must be a whole number of at least {least}, not {value!r}"
            )
    if handler.rate_period is not None and (handler.rate is None or handler.rate_period.total_seconds() <= 0):
        raise UsageError(
            f"{handler.name}: rate_period must be positive, and needs rate", hint="rate=100, rate_period=60"
        )
    if handler.rate_per not in (None, "all", "key", "tenant") or (handler.rate_per and handler.rate is None):
        raise UsageError(
            f"{handler.name}: rate_per={handler.rate_per!r} does not work with rate={handler.rate!r}",
            hint='rate=100, rate_per="key" or "tenant"',
        )
    needs_key = "max_per_key" if handler.max_per_key is not None else 'rate_per="key"'
    if handler.concurrency_key is None and (handler.max_per_key is not None or handler.rate_per == "key"):
        raise UsageError(
            f"{handler.name}: {needs_key} needs a concurrency_key",
            hint='concurrency_key="{user_id}"',
        )


def check_keys(handler: Handler) -> None:
    """Raise UsageError for a key that is neither a function nor a template of the task's arguments."""
    parameters = inspect.signature(handler.function).parameters
    anything = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for option in KEYS:
        key = getattr(handler, option)
        if key is None or callable(key):
            continue
        hint = f'{option}="{{{next(iter(parameters), "name")}}}", or a function of the arguments'
        if not isinstance(key, str) or not is_template(key):
            raise UsageError(f"{handler.name}: {option}={key!r} is not a template of arguments", hint=hint)
        if not anything and (unknown := [name for name in fields(key) if name not in parameters]):
            raise UsageError(f"{handler.name}: {option} names {unknown[0]}, which is no argument", hint=hint)


def limits(handler: Handler) -> dict[str, Any]:
    """Return the limits of one task type, as the database takes them."""
    names = ("name", "max_running", "max_per_key", "rate", "rate_period", "rate_per")
    return {name: value for name in names if (value := getattr(handler, name)) is not None}
