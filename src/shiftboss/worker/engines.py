"""Engines: other places than this machine for handlers to run in. Extensions bring them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from shiftboss.extension import extensions, load, missing
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings
    from shiftboss.model.task import Claimed, Outcome
    from shiftboss.worker.handlers import Handler, Handlers
    from shiftboss.worker.talk import Ears


class Engine(Protocol):
    """Runs handlers that name it. A worker that is connected to one runs those and no others."""

    name: str
    on_room: Callable[[], None]
    """Called when there may be more room than before."""

    async def open(self, handlers: Handlers, db: Database | None) -> None:
        """Connect; `handlers` are those that it will run."""
        ...

    def room(self, held: int) -> int:
        """How many tasks it can start now beside those that the worker holds, given to it already or not."""
        ...

    def full(self) -> str:
        """Why there is no room, for people."""
        ...

    async def run(self, handler: Handler, task: Claimed, seconds: float | None, ears: Ears) -> Outcome:
        """How the handler ended; a cancelled one is ended there as well. Raises ChildDied if it was lost."""
        ...

    async def close(self) -> None: ...


def feature(name: str) -> str:
    """What a worker declares that is connected to this engine, and what its tasks require."""
    return f"engine:{name}"


def requiring(requires: dict[str, Any] | None, engine: str) -> dict[str, Any]:
    """The requirements of a task, and that its worker is connected to the engine."""
    given = dict(requires or {})
    return given | {"features": [*given.get("features", ()), feature(engine)]}


def engine_of(settings: Settings) -> Engine | None:
    """The engine that the settings name, not opened yet."""
    return None if settings.worker.engine is None else connect(settings.worker.engine, settings)


def connect(target: str, settings: Settings) -> Engine:
    """The engine that `name` or `name=address` names, not opened yet."""
    name, _, address = target.partition("=")
    brought = {name: one for one in extensions() for name in one.engines}
    if name not in brought:
        known = ", ".join(sorted(brought)) or "none"
        raise UsageError(f"there is no engine {name!r}", hint=f"installed: {known}")
    try:
        make: Callable[[str | None, Settings], Engine] = load(brought[name].engines[name])
    except ModuleNotFoundError as error:
        raise missing(f"the engine {name}", brought[name].extra, error) from error
    return make(address or None, settings)
