"""Events of a worker, for logging, metrics and tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shiftboss.log import get_logger
from shiftboss.model.task import Claimed, Report

log = get_logger(__name__)


class Started(NamedTuple):
    """An attempt starts."""

    task: Claimed


class Ended(NamedTuple):
    """An attempt has ended. Its report may not be delivered yet."""

    report: Report


class Joined(NamedTuple):
    """The worker has registered."""

    worker_id: str


class Left(NamedTuple):
    """The worker has unregistered."""

    worker_id: str


Event = Started | Ended | Joined | Left
Listener = Callable[[Event], None]


class Hooks:
    """Calls listeners in order. An exception of a listener is logged and does not affect the others."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Listener:
        """Add a listener; usable as a decorator."""
        self._listeners.append(listener)
        return listener

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("hook failed", hook=getattr(listener, "__name__", repr(listener)))
