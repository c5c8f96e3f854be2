"""The demo: analyses a year of three people's journals and shows the findings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.resources import as_file, files

from rich.console import Console

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.journal import commands
from shiftboss.extensions.journal.follow import follow
from shiftboss.extensions.journal.reading import read
from shiftboss.extensions.journal.view import show_hits, show_insights
from shiftboss.model.errors import ShiftbossError

USERS = ("mara", "jonas", "priya")
QUESTIONS = ("awake at night with worry about work", "a happy day on the water", "selling bread")
TOLD = 7


async def demo(db: Database, ai: AI, console: Console, timeout: float | None = None) -> None:
    """Import the sample, wait for its analysis by the fleet, and show the findings.

    If the sample is already analysed, only show the findings.
    """
    started = time.monotonic()
    imported = await import_sample(db)
    counts = imported.outcomes
    new, known = counts["new"], counts["same"]
    console.print(f"{counts.total()} journal entries: {new} new, {known} known", highlight=False)
    failed = await follow(db, imported.tasks, console, timeout)
    if failed:
        why = (failed[0].error or failed[0].status).splitlines()[0]
        message = f"{len(failed)} tasks failed, the first with: {why}"
        raise ShiftbossError(message, hint="run `shiftboss journal process` to try again")
    if imported.tasks:
        seconds = time.monotonic() - started
        console.print(f"{len(imported.tasks)} tasks in {seconds:.1f} s", highlight=False)
    await tell(db, ai, console)


async def import_sample(db: Database) -> commands.Imported:
    """Import the sample, and enqueue the analysis of entries that are not analysed yet."""
    with as_file(files("shiftboss.extensions.journal") / "sample") as folder:
        sample = read(folder / f"{user}.jsonl" for user in USERS)
        imported = await commands.import_entries(db, sample, process=False)
    for user in USERS:
        imported.tasks += await commands.process(db, user)
    return imported


async def tell(db: Database, ai: AI, console: Console, users: Sequence[str] = USERS) -> None:
    """Show the findings about each writer, and the results of a few searches."""
    for user in users:
        console.print()
        show_insights(console, await commands.insights(db, user), most=TOLD)
    for question in QUESTIONS:
        console.print(f"\nsearch [bold]“{question}”[/]")
        show_hits(console, await commands.search(db, ai, question, limit=3))
