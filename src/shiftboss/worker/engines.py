"""Engines: run handlers elsewhere than in a worker process. Extensions add them by name."""

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
    from shiftboss.worker.messages import Callbacks


class Engine(Protocol):
    """Runs the handlers that name it. A worker that is connected to an engine runs no other handlers."""

    name: str
    on_room: Callable[[], None]
    """Called when the engine may be able to start more tasks."""

    async def open(self, handlers: Handlers, db: Database | None) -> None:
        """Connect to the engine. `handlers` has all handlers of the worker."""
        ...

    def room(self, held: int) -> int:
        """Return how many tasks it can start in addition to the `held` tasks of the worker."""
        ...

    def full(self) -> str:
        """Describe why there is no room."""
        ...

    async def run(
        self, handler: Handler, task: Claimed, seconds: float | None, callbacks: Callbacks
    ) -> Outcome:
        """Run a handler and return its outcome. Cancelling ends it there. Raises ChildDied if it is lost."""
        ...

    async def close(self) -> None: ...


def feature(name: str) -> str:
    """Return the feature that workers of this engine declare and its tasks require."""
    return f"engine:{name}"


def requiring(requires: dict[str, Any] | None, engine: str) -> dict[str, Any]:
    """Add the engine's feature to the requirements of a task."""
    given = dict(requires or {})
    return given | {"features": [*given.get("features", ()), feature(engine)]}


def engine_of(settings: Settings) -> Engine | None:
    """Return the engine that the setting `worker.engine` names, not opened yet."""
    if settings.worker.engine is None:
        return None
    name, _, address = settings.worker.engine.partition("=")
    brought = {name: one for one in extensions() for name in one.engines}
    if name not in brought:
        known = ", ".join(sorted(brought)) or "none"
        raise UsageError(f"there is no engine {name!r}", hint=f"installed engines: {known}")
    try:
        make: Callable[[str | None, Settings], Engine] = load(brought[name].engines[name])
    except ModuleNotFoundError as error:
        raise missing(f"the engine {name}", brought[name].extra, error) from error
    return make(address or None, settings)
