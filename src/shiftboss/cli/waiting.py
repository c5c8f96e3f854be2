"""Commands that wait for a task: they say what it waits for, and stop after `--timeout`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from shiftboss.cli.output import parse_span
from shiftboss.model.errors import DatabaseError, NotFound, ResultTimeout

if TYPE_CHECKING:
    from shiftboss.db import Database

#: Seconds between two looks at a task that has not ended.
PATIENCE = 5.0


def _seconds(word: str) -> float:
    return parse_span(word).total_seconds()


Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", parser=_seconds, metavar="TIME", help="stop waiting after this time, such as 30s or 5m"
    ),
]


@asynccontextmanager
async def waiting(db: Database, awaited: Callable[[], UUID], timeout: float | None) -> AsyncIterator[None]:
    """Say on stderr why the awaited task does not run, and raise ResultTimeout after `timeout` seconds."""
    explaining = asyncio.create_task(_explain(db, awaited))
    try:
        async with asyncio.timeout(timeout) as limit:
            yield
    except TimeoutError:
        if timeout is None or not limit.expired():
            raise
        raise ResultTimeout(awaited(), timeout) from None
    finally:
        explaining.cancel()
        with suppress(asyncio.CancelledError):
            await explaining


async def _explain(db: Database, awaited: Callable[[], UUID]) -> None:
    """Print the reasons why the task waits, and again whenever they change."""
    said: list[str] = []
    while True:
        await asyncio.sleep(PATIENCE)
        task = awaited()
        with suppress(DatabaseError, NotFound):
            reasons = [reason for reason in await db.tasks.why(task) if reason.reason != "in progress"]
            names = [reason.reason for reason in reasons]
            for reason in reasons if names != said else []:
                typer.echo(f"waiting for task {task}: {reason.detail}; {reason.advice}", err=True)
            said = names
