"""FastAPI and Starlette: a lifespan that keeps the database open, and task handles as dependencies."""

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
    """Return a lifespan that keeps the app's database open: `FastAPI(lifespan=lifespan(app))`.

    With `worker`, tasks run in this process too, for small services and development. `inner` is your own
    lifespan, if you have one.
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
    """Return a dependency that resolves `{task_id}` in the path to a handle, or responds with 404.

    Use `Annotated[Handle[str], Depends(handle_of(greet))]`, or `handle_of(app)` for tasks of any type.
    """

    async def handle(task_id: UUID) -> Handle[Any]:
        found: Handle[Any] = source.handle(task_id)
        try:
            await found.status()
        except NotFound as error:
            raise HTTPException(404, error.message) from None
        return found

    return handle
