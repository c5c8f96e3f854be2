"""The service put together, and how it is served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from shiftboss import __version__
from shiftboss.admin import problems
from shiftboss.admin.access import is_loopback
from shiftboss.admin.api import ROUTERS
from shiftboss.admin.bounded import Bounded
from shiftboss.admin.desk import Desk
from shiftboss.admin.page.mount import mount
from shiftboss.db import Database
from shiftboss.model.errors import NotFound
from shiftboss.model.settings import Settings

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
DESCRIPTION = """One service for the whole fleet: runs, tasks, workers, slots, queues, events, tokens.

Every call needs a bearer token (`shiftboss token create`) as soon as there is one. Roles: viewer reads,
operator acts, admin makes tokens. Errors are application/problem+json."""


def create_app(db: Database, settings: Settings | None = None) -> FastAPI:
    """The admin service on an open database."""
    desk = Desk(db, settings or Settings.load())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with desk.open():
            yield

    app = FastAPI(
        title="Shiftboss admin",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url="/api/docs",
        openapi_url="/api/openapi.json",
        redoc_url=None,
    )
    desk.attach(app)
    problems.install(app)
    app.add_middleware(Bounded)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # include_router() would build each of them once more
    # The page answers everything that is left; an API client must not get its HTML.
    app.add_api_route("/api/{path:path}", _no_such_path, methods=METHODS, include_in_schema=False)
    mount(app, desk)
    return app


async def _no_such_path(path: str) -> None:
    raise NotFound(f"there is no /api/{path}", hint="/api/docs lists what there is")


async def serve(
    db: Database, settings: Settings, *, host: str | None = None, port: int | None = None
) -> None:
    """Serve until a signal. Refuses an address that others can reach while there is no token."""
    app = create_app(db, settings)
    desk: Desk = app.state.desk
    admin = settings.admin
    host = host or admin.host
    await desk.access.check_bind(host)
    await uvicorn.Server(server_config(app, settings, host, admin.port if port is None else port)).serve()


def server_config(app: FastAPI, settings: Settings, host: str, port: int) -> uvicorn.Config:
    """How uvicorn is run: quiet, and without waiting for event streams that never end by themselves."""
    tls: dict[str, Any] = {}
    if settings.admin.tls_cert:
        tls = {"ssl_certfile": settings.admin.tls_cert, "ssl_keyfile": settings.admin.tls_key}
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
