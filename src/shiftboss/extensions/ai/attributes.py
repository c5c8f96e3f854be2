"""Provides the AI engine as `ctx.ai`, `ctx.sync_ai`, `app.ai` and `app.sync.ai`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, overload

from shiftboss.extensions.ai.admission import UNAVAILABLE_SECONDS
from shiftboss.extensions.ai.client import Client, SyncClient
from shiftboss.extensions.ai.engines import engine_of
from shiftboss.model.errors import DatabaseUnavailable, Defer
from shiftboss.worker.context import Context

if TYPE_CHECKING:
    from shiftboss.app.app import App
    from shiftboss.app.sync import Sync
    from shiftboss.extensions.ai.engine import AI


@overload
def ai_of(owner: Context | App) -> Client: ...


@overload
def ai_of(owner: Sync) -> SyncClient: ...


def ai_of(owner: Context | App | Sync) -> Client | SyncClient:
    """Return `owner.ai` with its type, which type checkers cannot infer for attributes of extensions."""
    engine: Client | SyncClient = owner.ai
    return engine


async def _engine(backend: Any) -> AI:
    try:
        return await engine_of(backend)
    except DatabaseUnavailable as error:  # defer the task without spending an attempt, as for a call
        raise Defer("the database does not answer", UNAVAILABLE_SECONDS, hint=error.hint) from error


def of_context(ctx: Context) -> Client:
    """Return a client that charges the tenant and task type of the task."""
    backend, task = ctx.backend, ctx.task
    emit = partial(Context.emit, ctx)  # a SyncContext's own emit would block the event loop
    return Client(
        lambda: _engine(backend), emit, task_id=task.id, task_type=task.task_type, tenant=task.tenant
    )


def of_thread(ctx: Context) -> SyncClient:
    """Return a client without `await`, for a handler that runs in a thread."""
    return SyncClient(ctx.ai, ctx.run_in_loop)


def of_app(app: App) -> Client:
    """Return a client for code outside tasks: `await app.ai.complete("...")`."""

    async def engine() -> AI:
        return await _engine(await app.database())

    return Client(engine)


def of_sync(sync: Sync) -> SyncClient:
    """Return a client without `await`: `app.sync.ai.complete("...")`."""
    return SyncClient(sync.app.ai, sync.run)
