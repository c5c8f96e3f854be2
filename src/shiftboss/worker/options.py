"""The options of a task decorator, and their validation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from shiftboss.model.errors import UsageError
from shiftboss.model.sources import similar
from shiftboss.model.terms import KEYS, fields, is_template
from shiftboss.worker.batches import Batch
from shiftboss.worker.retries import Errors, Pause

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler

Mode = Literal["async", "thread", "process"]
Key = str | Callable[..., str | None]
SPANS = ("backoff_max", "timeout", "rate_period", "dedup_for", "debounce", "debounce_max")
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


class Terms(TypedDict, total=False):
    """The options of a task decorator. A plain number of a time span means seconds."""

    queue: str
    """The queue of its tasks. Default: `default`."""
    priority: int | None
    """0 to 100; higher values run first."""
    max_attempts: int | None
    """How many attempts fail before the task is `Failed`."""
    backoff: timedelta | float | Pause | None
    """The pause before the second attempt; later pauses are longer. Or a function that takes the number of
    the failed attempt (from 1) and its error, and returns the pause. Workers call it, and the other backoff
    options do not apply."""
    backoff_factor: float | None
    """The factor between one pause and the next. Default: 2; with 1 all pauses are equal."""
    backoff_max: timedelta | float | None
    """The longest pause. Default: one hour."""
    retry_on: Errors | None
    """Retry only after these exceptions. Default: after all. A timeout raises TimeoutError."""
    give_up_on: Errors | None
    """Exceptions that fail the task without another attempt."""
    origin: str | None
    """What requested the task, such as `user_requested`. It determines the priority if none is given."""
    timeout: timedelta | float | None
    """The longest duration of one attempt."""
    concurrency_key: Key | None
    """The key of a task, for limits per key: a template of its arguments, such as `"{user_id}"`, or a
    function that takes them by name. A function applies only to tasks enqueued where it is imported."""
    max_running: int | None
    """How many may run at a time in the whole fleet. Workers declare this limit and the next four when they
    start; limits that an operator sets (`shiftboss queues limit --type`) take precedence."""
    max_per_key: int | None
    """How many may run at a time with the same `concurrency_key`."""
    rate: int | None
    """How many may start within `rate_period`."""
    rate_period: timedelta | float | None
    """Default: one minute."""
    rate_per: Literal["all", "key", "tenant"] | None
    """Apply `rate` to each `concurrency_key` or each tenant. Default: `all`, one rate for the type."""
    dedup_key: Key | None
    """A template or function as for `concurrency_key`. Only one task of this type can be live with the same
    key."""
    dedup_for: timedelta | float | None
    """How long the key stays reserved after the enqueue, even if the task completes earlier."""
    debounce: timedelta | float | None
    """Start this long after the last enqueue with the same key, with its arguments."""
    debounce_max: timedelta | float | None
    """The latest start of a debounced task, counted from its first enqueue."""
    requires: dict[str, Any] | None
    """What a worker must have, such as `{"gpu": True}`."""
    version: int | str | None
    """A started task continues only on workers with its version; see also `compatible`."""
    compatible: list[int | str] | None
    """Versions whose started tasks this version can continue."""
    mode: Mode | None
    """`async`, `thread` or `process`. Default: `async` for async functions, `thread` for others."""
    engine: str | None
    """The name of the engine, such as a cluster, that runs it; see `worker.engine`."""
    cpus: float | None
    """CPUs to request from the engine. Default: 1."""
    gpus: float | None
    """GPUs to request from the engine."""
    memory: int | None
    """Memory to request from the engine, in bytes."""


class AllTerms(Terms, total=False):
    """All options. `batch` is separate because it changes the type of the decorated function."""

    batch: Batch | int | None
    """Call the function once for many tasks, with a list of items. It returns a list of results."""


def seconds(value: timedelta | float | None) -> timedelta | None:
    """Convert a number of seconds to a timedelta."""
    return timedelta(seconds=value) if isinstance(value, int | float) else value


def refuse_unknown(task: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise UsageError for the first option that is not `known`, and suggest the right one."""
    for name in given:
        if name in known:
            continue
        meant = ELSEWHERE.get(name) or similar(name, known)
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
            f"{handler.name}: {needs_key} needs a concurrency_key", hint='concurrency_key="{user_id}"'
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
