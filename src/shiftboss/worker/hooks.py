"""Events of the runtime, for logging, metrics and tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shiftboss.log import get_logger
from shiftboss.model.task import Claimed, Report

log = get_logger(__name__)


class Started(NamedTuple):
    """An attempt begins."""

    task: Claimed


class Ended(NamedTuple):
    """An attempt has ended; the report may not have been delivered yet."""

    report: Report


class Joined(NamedTuple):
    """The worker is in the fleet."""

    worker_id: str


class Left(NamedTuple):
    """The worker has left."""

    worker_id: str


Event = Started | Ended | Joined | Left
Listener = Callable[[Event], None]


class Hooks:
    """Listeners in order; one that raises is logged and does not hinder the others."""

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
                log.exception("a hook failed", hook=getattr(listener, "__name__", repr(listener)))
