"""`shiftboss slots`, `pause`, `resume` and `restart`: the state of supervised workers, and orders to them."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftboss.cli.output import Columns, Json, ask, say_json, show_rows, span
from shiftboss.model.errors import UsageError

Components = Annotated[list[str] | None, typer.Argument(help="workers, such as worker:processing:0")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="all workers of this queue")]
All = Annotated[bool, typer.Option("--all", help="all workers")]

COLUMNS: Columns = {
    "slot": lambda row: row["component"],
    "host": lambda row: row["host"],
    "state": lambda row: f"{row['status']}, paused" if row["paused"] else row["status"],
    "pid": lambda row: row["pid"],
    "beat": lambda row: f"{span(row['seconds_since_beat'])} ago",
    "restarts": lambda row: row["restart_count"],
    "task": lambda row: row["current_job"],
    "last trouble": lambda row: row["error_message"],
}

slots = typer.Typer(add_completion=False)
pause = typer.Typer(add_completion=False)
resume = typer.Typer(add_completion=False)
restart = typer.Typer(add_completion=False)


@slots.command()
def _slots(as_json: Json = False) -> None:
    """Every slot: its process, its state and how often it was restarted."""
    rows = ask(lambda db: db.health.slots())
    say_json(rows) if as_json else show_rows(
        rows, COLUMNS, empty="no slots: `shiftboss supervise` keeps some"
    )


@pause.command()
def _pause(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Let workers finish what they do and claim nothing new, until they are resumed."""
    _one_choice("pause", components, queue, everyone)
    for name in ask(lambda db: db.health.pause_workers(components or None, queue)):
        typer.echo(f"{name} paused")


@resume.command()
def _resume(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Let paused workers claim again."""
    _one_choice("resume", components, queue, everyone)
    for name in ask(lambda db: db.health.resume_workers(components or None, queue)):
        typer.echo(f"{name} resumed")


@restart.command()
def _restart(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Restart workers: each finishes its task first. The only way out of failed; the count begins anew."""
    _one_choice("restart", components, queue, everyone)
    for row in ask(lambda db: db.health.restart_workers(components or None, queue)):
        typer.echo(f"{row['component']}: {row['note']}")


def _one_choice(verb: str, components: list[str] | None, queue: str | None, everyone: bool) -> None:
    if sum((bool(components), queue is not None, everyone)) != 1:
        raise UsageError(
            f"say which workers to {verb}",
            hint=f"shiftboss {verb} worker:processing:0, or --queue processing, or --all",
        )
