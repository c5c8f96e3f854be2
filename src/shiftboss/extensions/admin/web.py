"""Runs the admin service inside another process, in its event loop and without handling signals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from shiftboss.db import Database
from shiftboss.extensions.admin.backend import Backend
from shiftboss.extensions.admin.service import address, create_app, server_config
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.lifecycle import Service
from shiftboss.model.settings import Settings


class _Server(uvicorn.Server):
    """Sets `up` when it is ready, and leaves signals to the surrounding process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Web(Service):
    """The admin service as a part of another process."""

    def __init__(self, db: Database, settings: Settings, host: str, port: int) -> None:
        super().__init__()
        self._settings, self._host, self._port = settings, host, port
        self._app = create_app(db, settings)
        self.admin: Backend = self._app.state.admin

    @property
    def url(self) -> str:
        return address(self._host, self._port, tls=AdminSettings.of(self._settings).tls_cert is not None)

    async def run(self) -> None:
        await self.admin.access.check_bind(self._host)
        server = _Server(server_config(self._app, self._settings, self._host, self._port))
        serving = asyncio.create_task(server.serve())
        up = asyncio.create_task(server.up.wait())
        await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if not serving.done():
            self._port = server.servers[0].sockets[0].getsockname()[1]
            self.ready()
            await self.stopping.wait()
            server.should_exit = True
        await serving
