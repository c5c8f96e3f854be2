"""The service behind `shiftboss up`: workers, a leader candidate, and the services of extensions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from shiftboss.app.schedule import register_schedules
from shiftboss.db import Database
from shiftboss.extension import Extension, contributions
from shiftboss.leader.autoscaler import configure
from shiftboss.leader.duties import candidate
from shiftboss.lifecycle import Service, first_of, sleep
from shiftboss.model.settings import Settings
from shiftboss.supervisor.supervisor import ALL, Supervisor

LOOK_SECONDS = 0.1

Say = Callable[[str, str], None]


class Up(Service):
    """Runs supervised workers, a leader candidate and the services of all extensions on one database.

    Services whose packages are not installed are skipped with a message that names the extra.
    """

    def __init__(
        self, target: str, app: Any, db: Database, settings: Settings, say: Say, log_level: str = "warning"
    ) -> None:
        super().__init__()
        self._target, self._log_level = target, log_level
        self.db, self.settings, self.say = db, settings, say
        self._app = app
        self._stack = AsyncExitStack()
        self._when_ready: list[Callable[[], Awaitable[None]]] = []
        self.grace = settings.supervisor.stop_seconds + 60

    async def enter(self, service: Service) -> None:
        """Start a service. It stops at the end, after the workers have stopped."""
        await self._stack.enter_async_context(service)

    def when_ready(self, call: Callable[[], Awaitable[None]]) -> None:
        """Register a function to call once the first worker is ready."""
        self._when_ready.append(call)

    async def run(self) -> None:
        await self.db.installation.own()
        await configure(self.db, self.settings.autoscale)
        await register_schedules(self.db, self._app)
        async with self._stack:
            # Services stop in reverse order, so that workers stop while everything else still runs.
            for start in contributions("services", self._left_out):
                await start(self)
            await self.enter(candidate(self.db, self.settings))
            for companion in contributions("companions"):
                await self.enter(companion(self.db, self.settings))
            supervisor = Supervisor.of(self.db, self.settings, self._target, self._log_level)
            await self.enter(supervisor)
            self.say("workers", _pools(self.settings.supervisor.queues))
            await self._first_worker(supervisor)
            for call in self._when_ready:
                await call()
            self.ready()
            (await first_of(supervisor.wait(), self.stopping.wait())).result()

    def _left_out(self, extension: Extension) -> None:
        self.say(extension.name, f"not installed: pip install 'shiftboss[{extension.extra}]'")

    async def _first_worker(self, supervisor: Supervisor) -> None:
        """Wait until a worker is ready to take tasks."""
        mine = {slot.component for slot in supervisor.slots}
        ends = time.monotonic() + self.settings.supervisor.start_seconds
        while mine and not await sleep(LOOK_SECONDS, self.stopping):
            rows = await self.db.health.get_all_workers()
            if any(row["component"] in mine and row["status"] == "healthy" for row in rows):
                return
            if time.monotonic() > ends:
                self.say("workers", "no worker has started yet: see `shiftboss events`")
                return


def _pools(queues: dict[str, int]) -> str:
    return ", ".join(
        f"{count} for {'all queues' if queue == ALL else f'queue {queue}'}" for queue, count in queues.items()
    )
