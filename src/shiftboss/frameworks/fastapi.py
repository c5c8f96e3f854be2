"""FastAPI and Starlette: a lifespan that keeps the database open, and handles as dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, overload
from uuid import UUID

from fastapi import HTTPException

from shiftboss.app import App, Handle, Task
from shiftboss.model.errors import NotFound

R = TypeVar("R")
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(app: App, *, worker: bool = False, inner: Lifespan | None = None) -> Lifespan:
    """For `FastAPI(lifespan=lifespan(app))`: the app's database is open while the server runs.

    With `worker` the tasks run in this process as well, for small services and for development. `inner` is
    a lifespan of your own.
    """

    @asynccontextmanager
    async def around(server: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            state = await stack.enter_async_context(inner(server)) if inner is not None else None
            if worker:
                await stack.enter_async_context(app.worker())
            yield state

    return around


@overload
def handle_of(source: Task[..., R]) -> Callable[[UUID], Awaitable[Handle[R]]]: ...


@overload
def handle_of(source: App) -> Callable[[UUID], Awaitable[Handle[Any]]]: ...


def handle_of(source: Any) -> Any:
    """A dependency: the handle of the task that the path names as `{task_id}`; 404 if there is none.

    `Annotated[Handle[str], Depends(handle_of(greet))]`, or `handle_of(app)` for tasks of any type.
    """

    async def handle(task_id: UUID) -> Handle[Any]:
        found: Handle[Any] = source.handle(task_id)
        try:
            await found.status()
        except NotFound as error:
            raise HTTPException(404, error.message) from None
        return found

    return handle
