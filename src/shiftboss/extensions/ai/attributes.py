"""The AI engine as `ctx.ai`, `ctx.sync_ai`, `app.ai` and `app.sync.ai`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, overload

from shiftboss.extensions.ai.client import Client, SyncClient
from shiftboss.extensions.ai.engines import engine_of
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
    """`owner.ai` with its type, since type checkers cannot know what extensions add."""
    engine: Client | SyncClient = owner.ai
    return engine


def of_context(ctx: Context) -> Client:
    """The engine on behalf of a task: its tenant and task type are charged."""
    backend, task = ctx.backend, ctx.task
    emit = partial(Context.emit, ctx)  # that of a plain handler would block the loop
    return Client(
        lambda: engine_of(backend), emit, task_id=task.id, task_type=task.task_type, tenant=task.tenant
    )


def of_thread(ctx: Context) -> SyncClient:
    """The same without await, for a handler that runs in a thread."""
    return SyncClient(ctx.ai, ctx.run_in_loop)


def of_app(app: App) -> Client:
    """The engine for code outside of tasks: `await app.ai.complete("...")`."""

    async def engine() -> AI:
        return await engine_of(await app.database())

    return Client(engine)


def of_sync(sync: Sync) -> SyncClient:
    """The same without await: `app.sync.ai.complete("...")`."""
    return SyncClient(sync.app.ai, sync.run)
