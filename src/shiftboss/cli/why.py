"""`shiftboss why`: explain why a task waits, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from shiftboss.cli.output import Json, TaskId, ask, console, on_terminal, say_json, task_id

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.task import Reason

app = typer.Typer(add_completion=False)


@app.command()
def why(id: TaskId, as_json: Json = False) -> None:
    """Explain why a task waits. Each reason comes with advice.

    Example: shiftboss why 0199d3c2-5b1e
    """

    async def look(db: Database) -> list[Reason]:
        return await db.tasks.why(await task_id(db, id))

    reasons = ask(look)
    if as_json:
        say_json([reason._asdict() for reason in reasons])
        return
    out = console()
    for reason in reasons:
        if on_terminal():
            out.print(f"[bold yellow]{reason.reason}[/]: ", end="")
            out.print(reason.detail, markup=False, soft_wrap=True)
            out.print(f"  → {reason.advice}", style="green", markup=False, soft_wrap=True)
        else:
            typer.echo(f"{reason.reason}\t{' '.join(reason.detail.split())}\t{reason.advice}")
