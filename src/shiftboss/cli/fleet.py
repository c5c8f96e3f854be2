"""`shiftboss pause`, `resume` and `restart`: orders to supervised workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database

T = TypeVar("T")

Components = Annotated[list[str] | None, typer.Argument(help="workers, such as worker:processing:0")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="all workers of this queue")]
All = Annotated[bool, typer.Option("--all", help="all workers")]

pause = typer.Typer(add_completion=False)
resume = typer.Typer(add_completion=False)
restart = typer.Typer(add_completion=False)


@pause.command()
def _pause(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Let workers finish what they do and claim nothing new, until they are resumed."""
    _one_choice("pause", components, queue, everyone)
    for name in _ask(lambda db: db.health.pause_workers(components or None, queue)):
        typer.echo(f"{name} paused")


@resume.command()
def _resume(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Let paused workers claim again."""
    _one_choice("resume", components, queue, everyone)
    for name in _ask(lambda db: db.health.resume_workers(components or None, queue)):
        typer.echo(f"{name} resumed")


@restart.command()
def _restart(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Restart workers: each finishes its task first. The only way out of failed; the count begins anew."""
    _one_choice("restart", components, queue, everyone)
    for row in _ask(lambda db: db.health.restart_workers(components or None, queue)):
        typer.echo(f"{row['component']}: {row['note']}")


def _one_choice(verb: str, components: list[str] | None, queue: str | None, everyone: bool) -> None:
    if sum((bool(components), queue is not None, everyone)) != 1:
        raise UsageError(
            f"say which workers to {verb}",
            hint=f"shiftboss {verb} worker:processing:0, or --queue processing, or --all",
        )


def _ask(question: Callable[[Database], Awaitable[T]]) -> T:
    from shiftboss.db import Database

    async def answer() -> T:
        async with await Database.open() as db:
            return await question(db)

    return asyncio.run(answer())
