"""Everything under one roof: what `shiftboss up` runs in one terminal."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import structlog

from shiftboss.app.schedule import register_schedules
from shiftboss.db import Database
from shiftboss.lifecycle import Service, sleep
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss.supervisor import Supervisor

if TYPE_CHECKING:
    from shiftboss.app.web import Web

log = structlog.get_logger()

#: The pool whose workers serve every queue.
ALL = "all"
LINK_LIFE = timedelta(hours=12)
PORTS_TO_TRY = 20
LOOK_SECONDS = 0.1

Say = Callable[[str, str], None]


class House(Service):
    """Workers under supervision, leader's duties, coordinator, feeder and the admin service, on one database.

    Parts whose extras are not installed are left out, with a word.
    """

    def __init__(
        self, target: str, app: Any, db: Database, settings: Settings, say: Say, log_level: str = "warning"
    ) -> None:
        super().__init__()
        self.target, self._log_level = target, log_level
        self._app, self._db, self._settings, self._say = app, db, settings, say
        self.grace = settings.supervisor.stop_seconds + 60

    async def run(self) -> None:
        await register_schedules(self._db, self._app)
        async with AsyncExitStack() as stack:
            # Entered in this order and left in the reverse one: the workers end while all else still runs.
            web = await self._web(stack)
            await self._coordinator(stack)
            await stack.enter_async_context(self._leader())
            await self._feeder(stack)
            supervisor = self._supervisor()
            await stack.enter_async_context(supervisor)
            self._say("workers", _pools(self._settings.supervisor.queues))
            await self._first_worker(supervisor)
            if web is not None:
                self._say(
                    "dashboard", f"{await self._link(web)}  (good once, for {LINK_LIFE.seconds // 3600} h)"
                )
            self.ready()
            await self._until_stop(supervisor)

    async def _first_worker(self, supervisor: Supervisor) -> None:
        """Ready means: somebody can do what is submitted now."""
        mine = {slot.component for slot in supervisor.slots}
        ends = time.monotonic() + self._settings.supervisor.start_seconds
        while mine and not await sleep(LOOK_SECONDS, self.stopping):
            rows = await self._db.health.get_all_workers()
            if any(row["component"] in mine and row["status"] == "healthy" for row in rows):
                return
            if time.monotonic() > ends:
                self._say("workers", "none is up yet: `shiftboss events` tells why")
                return

    async def _until_stop(self, supervisor: Supervisor) -> None:
        stop = asyncio.ensure_future(self.stopping.wait())
        gone = asyncio.ensure_future(supervisor.wait())
        await asyncio.wait({stop, gone}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if gone.done():
            gone.result()
        gone.cancel()

    def _supervisor(self) -> Supervisor:
        chosen = self._settings.supervisor
        return Supervisor(
            self._db,
            chosen.host or socket.gethostname(),
            chosen.queues,
            self._command,
            chosen,
            direct_url=self._settings.database.direct_url,
        )

    def _command(self, queue: str, component: str, member: str) -> list[str]:
        queues = [] if queue == ALL else ["--queue", queue]
        worker = [sys.executable, "-m", "shiftboss", "worker", self.target, *queues]
        return [*worker, "--component", component, "--id", member, "--log-level", self._log_level]

    def _leader(self) -> Service:
        from shiftboss.coordinator.duties import candidate

        return candidate(self._db, self._settings)

    async def _coordinator(self, stack: AsyncExitStack) -> None:
        if not self._has("grpc", "coordinator"):
            return
        from shiftboss.coordinator.auth import DatabaseTokens
        from shiftboss.coordinator.server import Coordinator

        chosen = self._settings.coordinator
        if self._settings.source_of("coordinator.port") == "default" and not _free(chosen.host, chosen.port):
            chosen = chosen.model_copy(update={"port": 0})
        tokens = DatabaseTokens(self._db) if chosen.require_token else None
        coordinator = Coordinator(self._db, chosen, tokens, listen_url=self._settings.database.direct_url)
        await stack.enter_async_context(coordinator)
        self._say("coordinator", f"{coordinator.address}  (gRPC)")

    async def _feeder(self, stack: AsyncExitStack) -> None:
        if find_spec("pgvector") is None:
            return
        from shiftboss.vectorizer.feeder import Feeder

        poll, direct = self._settings.vectorizer.poll, self._settings.database.direct_url
        await stack.enter_async_context(Feeder(self._db, poll=poll, listen_url=direct))

    async def _web(self, stack: AsyncExitStack) -> Web | None:
        if not self._has("fastapi", "admin"):
            return None
        from shiftboss.app.web import Web

        chosen = self._settings.admin
        fixed = self._settings.source_of("admin.port") != "default"
        ports = range(chosen.port, chosen.port + (1 if fixed else PORTS_TO_TRY))
        port = next((port for port in ports if port == 0 or _free(chosen.host, port)), None)
        if port is None:
            raise UsageError(f"port {chosen.port} is taken", hint="choose another one with --port")
        web = Web(self._db, self._settings, chosen.host, port)
        await stack.enter_async_context(web)
        return web

    async def _link(self, web: Web) -> str:
        who = Principal(f"up:{os.getpid()}", Role.ADMIN)
        return f"{web.url}/login/{await web.desk.commands.create_login(who, Role.ADMIN, LINK_LIFE)}"

    def _has(self, module: str, extra: str) -> bool:
        if find_spec(module) is not None:
            return True
        self._say(extra, f"left out: pip install 'shiftboss[{extra}]'")
        return False


def _free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _pools(queues: dict[str, int]) -> str:
    return ", ".join(
        f"{count} for {'all queues' if queue == ALL else f'queue {queue}'}" for queue, count in queues.items()
    )
