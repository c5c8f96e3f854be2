"""`shiftboss logs`: show the log of a task."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import JsonLines, LogLevel, TaskId, note, on_terminal, say_json, task_id
from shiftboss.cli.waiting import Timeout, waiting
from shiftboss.model.codec import shown

if TYPE_CHECKING:
    from shiftboss.db import Database, Row

app = typer.Typer(add_completion=False)
COLOURS = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "red"}


@app.command()
def logs(
    id: TaskId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="keep printing until the task ends")] = False,
    timeout: Timeout = None,
    level: LogLevel = "debug",
    as_json: JsonLines = False,
) -> None:
    """Show the log of a task, oldest line first: time, level, attempt, step, logger and message.

    Example: shiftboss logs 0199d3c2-5b1e --follow
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(_show(id, follow, timeout, logging.getLevelNamesMapping()[level.upper()], as_json))


async def _show(prefix: str, follow: bool, timeout: float | None, level: int, as_json: bool) -> None:
    from shiftboss.db import Database

    async with await Database.open() as db:
        id = await task_id(db, prefix)
        lines = db.logs.follow(id, level=level) if follow else _stored(db, id, level)
        empty = True
        async with waiting(db, lambda: id, timeout):
            async for row in lines:
                empty = False
                say_json(row, line=True) if as_json else _print(row)
    if empty:
        note(f"task {id} has logged nothing at level {logging.getLevelName(level).lower()} or above")


async def _stored(db: Database, id: Any, level: int) -> Any:
    after = 0
    while rows := await db.logs.read(id, after, level=level):
        for row in rows:
            yield row
        after = rows[-1]["id"]


def _print(row: Row) -> None:
    where = f"{row['attempt']}" if row["step"] is None else f"{row['attempt']} {row['step']}"
    level = row["level"]
    if on_terminal():
        level = typer.style(f"{level:<8}", fg=COLOURS.get(level))
    at = f"{row['at'].astimezone():%H:%M:%S.%f}"[:-3]
    typer.echo(f"{at}  {level}  [{where}]  {row['logger']}  {shown(row['message'])}")
