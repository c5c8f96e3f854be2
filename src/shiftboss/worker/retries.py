"""Retry rules of a handler: which errors are retried, and how long to wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shiftboss.log import get_logger
from shiftboss.model.errors import LONGEST_DEFER, GiveUp, Retry, UsageError
from shiftboss.model.task import Claimed, Fail

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler

log = get_logger(__name__)

_FINAL = "_shiftboss_final"  # attribute of an exception
Errors = type[BaseException] | tuple[type[BaseException], ...]
Pause = Callable[[int, BaseException], timedelta | float | None]


def ruled(outcome: Fail, handler: Handler | None, task: Claimed, error: BaseException) -> Fail:
    """Apply the retry rules of the handler and of `error` to the outcome of an attempt."""
    if isinstance(error, GiveUp) or getattr(error, _FINAL, False):
        return outcome._replace(retry=False)
    if isinstance(error, Retry) and error.after is not None:
        return outcome._replace(after=error.after)
    if handler is None:
        return outcome
    if not isinstance(error, Retry) and not _worth_another(handler, error):
        return outcome._replace(retry=False)
    return outcome._replace(after=_pause(handler, task.attempt, error))


def mark_final(error: BaseException) -> None:
    """Let this exception fail its task without another attempt, like GiveUp, and keep its type."""
    with suppress(AttributeError):  # an exception with slots is retried
        setattr(error, _FINAL, True)


def _worth_another(handler: Handler, error: BaseException) -> bool:
    if handler.give_up_on is not None and isinstance(error, handler.give_up_on):
        return False
    return handler.retry_on is None or isinstance(error, handler.retry_on)


def _pause(handler: Handler, attempt: int, error: BaseException) -> float | None:
    """Return the seconds from the handler's backoff function, or None for the task's own backoff."""
    if handler.pause is None:
        return None
    try:
        answer = handler.pause(attempt, error)
        seconds = answer.total_seconds() if isinstance(answer, timedelta) else answer
        return None if seconds is None else min(max(float(seconds), 0.0), LONGEST_DEFER)
    except Exception:
        log.exception("backoff function failed, using the task's backoff", task_type=handler.name)
        return None


def errors(option: str, value: Any) -> Errors | None:
    """Return the exceptions given to `retry_on` or `give_up_on` as a tuple."""
    if value is None:
        return None
    kinds = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise UsageError(
                f"{option}: {kind!r} is not an exception class", hint=f"{option}=ConnectionError, or a tuple"
            )
    return kinds
