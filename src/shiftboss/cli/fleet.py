"""`shiftboss slots`, `pause`, `resume`, `drain` and `restart`: inspect and control workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Columns, Json, ask, show_rows, span
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database, Row
    from shiftboss.operations import Operations

Components = Annotated[list[str] | None, typer.Argument(help="workers, such as worker:processing:0")]
Workers = Annotated[list[str], typer.Argument(help="worker ids, as listed by `shiftboss status`")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="all workers of this queue")]
All = Annotated[bool, typer.Option("--all", help="all workers")]

COLUMNS: Columns = {
    "slot": "component",
    "host": "host",
    "state": lambda row: f"{row['status']}, paused" if row["paused"] else row["status"],
    "pid": "pid",
    "beat": lambda row: f"{span(row['seconds_since_beat'])} ago",
    "restarts": "restart_count",
    "task": "current_job",
    "last error": "error_message",
}

slots, pause, resume, drain, restart = (typer.Typer(add_completion=False) for _ in range(5))


@slots.command()
def _slots(as_json: Json = False) -> None:
    """List the slots: state, process, last heartbeat and number of restarts."""
    empty = "no slots: start workers with `shiftboss supervise module:app --queue default=4`"
    show_rows(ask(lambda db: db.health.slots()), COLUMNS, as_json=as_json, empty=empty)


@pause.command()
def _pause(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Let workers finish their tasks but claim no new ones until they are resumed."""
    _one_choice("pause", components, queue, everyone)
    _say(act(lambda db, operations: _steer(db, operations, components, queue, paused=True)), "paused")


@resume.command()
def _resume(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Let paused workers claim again."""
    _one_choice("resume", components, queue, everyone)
    _say(act(lambda db, operations: _steer(db, operations, components, queue, paused=False)), "resumed")


@drain.command()
def _drain(workers: Workers) -> None:
    """Let workers finish their tasks and exit. A supervisor restarts its workers; pause those instead.

    Example: shiftboss drain host-7:4711
    """

    async def end(_: Database, operations: Operations) -> None:
        for worker in workers:
            await operations.steer_worker(me(), worker, draining=True)
            typer.echo(f"{worker} is draining")

    act(end)


@restart.command()
def _restart(components: Components = None, queue: Queue = None, everyone: All = False) -> None:
    """Restart workers after they finish their tasks. Only a restart clears `failed`; it resets the count."""
    _one_choice("restart", components, queue, everyone)

    async def order(db: Database, operations: Operations) -> tuple[list[Row], list[str]]:
        rows = await operations.restart_slots(me(), components or None, queue)
        return rows, [] if components else await db.workers.unsupervised(queue)

    rows, alone = act(order)
    for row in rows:
        typer.echo(f"{row['component']}: {row['note']}")
    for name in alone:
        typer.echo(f"{name}: not restarted, since no supervisor keeps it; `shiftboss drain {name}` ends it")
    if not rows and not alone:
        typer.echo("no worker is running")


async def _steer(
    db: Database, operations: Operations, names: list[str] | None, queue: str | None, *, paused: bool
) -> list[str]:
    """Pause or resume workers, whether a supervisor keeps them or not; return the names."""
    rows = await db.health.slots()
    if names:
        slots = {row["component"] for row in rows}
        plain = [name for name in names if name not in slots and await db.workers.get(name) is not None]
    else:
        plain = await db.workers.unsupervised(queue)
    for name in plain:
        await operations.steer_worker(me(), name, paused=paused)
    kept = [name for name in names or [] if name not in plain]
    supervised = kept if names else [row for row in rows if queue in (None, row["queue"])]
    if plain and not supervised:
        return plain
    order = operations.pause_slots if paused else operations.resume_slots
    return [*plain, *await order(me(), kept or None, queue)]


def _say(names: list[str], done: str) -> None:
    for name in names:
        typer.echo(f"{name} {done}")
    if not names:
        typer.echo("no worker is running")


def _one_choice(verb: str, components: list[str] | None, queue: str | None, everyone: bool) -> None:
    if sum((bool(components), queue is not None, everyone)) != 1:
        raise UsageError(
            f"choose which workers to {verb}: by name, by --queue or --all",
            hint=f"for example: shiftboss {verb} --queue processing",
        )
