"""The service put together, and how it is served."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from shiftboss import __version__
from shiftboss.db import Database
from shiftboss.extensions.admin import problems
from shiftboss.extensions.admin.access import is_loopback
from shiftboss.extensions.admin.api import routers
from shiftboss.extensions.admin.backend import Backend
from shiftboss.extensions.admin.body_limit import BodyLimit
from shiftboss.extensions.admin.changing import Changing
from shiftboss.extensions.admin.page import manual
from shiftboss.extensions.admin.page.mount import mount
from shiftboss.extensions.admin.page.site import Page
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.leader.alerts import LeaderWatch
from shiftboss.model.errors import NotFound
from shiftboss.model.settings import Settings

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
DESCRIPTION = """One service for the whole fleet: runs, tasks, workers, slots, queues, events, tokens.

Every call needs a bearer token (`shiftboss token create`) as soon as there is one. Roles: viewer reads,
operator acts, admin makes tokens. Errors are application/problem+json."""


def create_app(db: Database, settings: Settings | None = None, *, pages: Iterable[Page] = ()) -> FastAPI:
    """The admin service on an open database; `pages` are added to its own."""
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
    app.add_middleware(BodyLimit)
    app.add_middleware(Changing, admin=admin)
    for router in routers():
        app.router.routes.extend(router.routes)  # include_router() would build each of them once more
    app.include_router(manual.router)
    # The page answers everything that is left; an API client must not get its HTML.
    app.add_api_route("/api/{path:path}", _no_such_path, methods=METHODS, include_in_schema=False)
    mount(app, admin, pages)
    return app


async def _no_such_path(path: str) -> None:
    raise NotFound(f"there is no /api/{path}", hint="/api/docs lists what there is")


async def serve(
    db: Database, settings: Settings, *, host: str | None = None, port: int | None = None
) -> None:
    """Serve until a signal. Refuses an address that others can reach while there is no token."""
    app = create_app(db, settings)
    admin: Backend = app.state.admin
    configured = AdminSettings.of(settings)
    host = host or configured.host
    await admin.access.check_bind(host)
    server = uvicorn.Server(server_config(app, settings, host, configured.port if port is None else port))
    async with LeaderWatch(db, settings.alerts):
        await server.serve()


def server_config(app: FastAPI, settings: Settings, host: str, port: int) -> uvicorn.Config:
    """How uvicorn is run: quiet, and without waiting for event streams that never end by themselves."""
    tls: dict[str, Any] = {}
    if AdminSettings.of(settings).tls_cert:
        tls = {
            "ssl_certfile": AdminSettings.of(settings).tls_cert,
            "ssl_keyfile": AdminSettings.of(settings).tls_key,
        }
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
        proxy_headers=False,
        server_header=False,
        **tls,
    )


def address(host: str, port: int, tls: bool = False) -> str:
    """The URL to open."""
    name = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 -- only compared
    return f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"


__all__ = ["address", "create_app", "is_loopback", "serve", "server_config"]
