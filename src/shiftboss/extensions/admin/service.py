"""Creates and serves the admin service, as a process or inside another one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

from shiftboss import __version__
from shiftboss.db import Database
from shiftboss.extensions.admin import problems
from shiftboss.extensions.admin.api import routers
from shiftboss.extensions.admin.backend import Backend
from shiftboss.extensions.admin.connections import LimitedConnection
from shiftboss.extensions.admin.middleware import Middleware
from shiftboss.extensions.admin.page import manual
from shiftboss.extensions.admin.page.mount import mount
from shiftboss.extensions.admin.page.site import Page
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.leader.alerts import LeaderWatch
from shiftboss.lifecycle import Service
from shiftboss.model.errors import NotFound
from shiftboss.model.settings import Settings

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
DESCRIPTION = """One service for the whole fleet: runs, tasks, workers, slots, queues, events, tokens.

Once a token exists (`shiftboss token create`), every call needs one as a bearer token. A viewer can read, an
operator can also act, and an admin can also manage tokens. Errors are application/problem+json."""


def create_app(db: Database, settings: Settings | None = None, *, pages: Iterable[Page] = ()) -> FastAPI:
    """Return the admin service for an open database, with the given pages in addition to its own."""
    admin = Backend(db, settings or Settings.load())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with admin.open():
            yield

    app = FastAPI(
        title="Shiftboss admin",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        openapi_url="/api/openapi.json",
        redoc_url=None,
    )
    admin.attach(app)
    problems.install(app)
    app.add_middleware(Middleware, admin=admin)
    for router in routers():
        app.router.routes.extend(router.routes)  # include_router() would rebuild each route
    app.include_router(manual.router)
    # The dashboard handles all other paths, but API clients must not get its HTML.
    app.add_api_route("/api/{path:path}", _no_such_path, methods=METHODS, include_in_schema=False)
    mount(app, admin, pages)
    return app


async def _no_such_path(path: str) -> None:
    raise NotFound(f"/api/{path} does not exist", hint="see /api/docs for the paths of the API")


async def serve(
    db: Database,
    settings: Settings,
    *,
    host: str | None = None,
    port: int | None = None,
    checked: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal arrives. Refuse an address that other machines can reach without a token.

    `checked` is called before it serves.
    """
    app = create_app(db, settings)
    admin: Backend = app.state.admin
    configured = AdminSettings.of(settings)
    host = host or configured.host
    await admin.access.check_role()
    await admin.access.check_bind(host)
    checked()
    server = uvicorn.Server(server_config(app, settings, host, configured.port if port is None else port))
    async with LeaderWatch(db, settings.alerts):
        await server.serve()


def server_config(app: FastAPI, settings: Settings, host: str, port: int) -> uvicorn.Config:
    """Return the configuration of uvicorn: few logs, and a shutdown that does not wait for event streams."""
    chosen = AdminSettings.of(settings)
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=LimitedConnection,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
        proxy_headers=False,
        server_header=False,
        ssl_certfile=chosen.tls_cert,
        ssl_keyfile=chosen.tls_key if chosen.tls_cert else None,
    )


def address(host: str, port: int, tls: bool = False) -> str:
    """Return the URL for a browser."""
    name = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 -- only compared
    return f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"


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


class AdminService(Service):
    """The admin service as a part of another process, in its event loop and without handling signals."""

    def __init__(self, db: Database, settings: Settings, host: str, port: int) -> None:
        super().__init__()
        self._settings, self._host, self._port = settings, host, port
        self._app = create_app(db, settings)
        self.admin: Backend = self._app.state.admin

    @property
    def url(self) -> str:
        return address(self._host, self._port, tls=AdminSettings.of(self._settings).tls_cert is not None)

    async def run(self) -> None:
        await self.admin.access.check_role()
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
