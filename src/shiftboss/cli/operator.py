"""Helpers for commands that change the fleet: the acting user, and operations on an open database."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from shiftboss.model.access import Principal, Role

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings
    from shiftboss.operations import Operations

T = TypeVar("T")
Ops = TypeVar("Ops")


def me() -> Principal:
    """Return the operating system's user as an admin, because database access already allows everything.

    The audit log records this name.
    """
    return Principal(f"cli:{getpass.getuser()}", Role.ADMIN, source=f"cli@{socket.gethostname()}")


def act(do: Callable[[Database, Operations], Awaitable[T]]) -> T:
    """Open the database, run `do` with its operations and return the result."""
    from shiftboss.operations import Operations

    return operate(Operations, do)


def operate(kind: Callable[[Database, Settings], Ops], do: Callable[[Database, Ops], Awaitable[T]]) -> T:
    """Open the database, run `do` with operations of this kind, and return the result."""

    async def run() -> T:
        async with operating(kind) as (db, operations):
            return await do(db, operations)

    return asyncio.run(run())


@asynccontextmanager
async def operating(kind: Callable[[Database, Settings], Ops]) -> AsyncIterator[tuple[Database, Ops]]:
    """Open the database and operations on it: `async with operating(Operations) as (db, operations)`."""
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings

    async with await Database.open() as db:
        yield db, kind(db, Settings.load())
