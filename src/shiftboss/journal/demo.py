"""The demo: a year of three people's journals through the whole pipeline, and what was found in it."""

from __future__ import annotations

from importlib.resources import as_file, files

from rich.console import Console

from shiftboss.ai import AI
from shiftboss.db import Database
from shiftboss.journal import commands
from shiftboss.journal.follow import follow
from shiftboss.journal.reading import read
from shiftboss.journal.view import show_hits, show_insights
from shiftboss.model.errors import ShiftbossError

QUESTIONS = ("awake at night with worry about work", "a happy day on the water", "selling bread")
TOLD = 6


async def demo(db: Database, ai: AI, console: Console) -> None:
    """Import the sample, follow its analysis by the workers of the fleet, and tell the findings.

    Run again, it finds everything done already and only tells.
    """
    imported = await import_sample(db)
    counts = imported.outcomes
    console.print(
        f"{counts.total()} journal entries: {counts['new']} new, {counts['same']} known", highlight=False
    )
    failed = await follow(db, imported.tasks, console)
    if failed:
        raise ShiftbossError(
            f"{len(failed)} tasks did not succeed, the first: {failed[0].error}",
            hint="`shiftboss journal process`",
        )
    await tell(db, ai, console)


async def import_sample(db: Database) -> commands.Imported:
    """The sample's entries, and tasks for all that are not analysed yet."""
    with as_file(files("shiftboss.journal") / "sample") as folder:
        imported = await commands.import_entries(db, read(sorted(folder.glob("*.jsonl"))), process=False)
    imported.tasks = await commands.process(db)
    return imported


async def tell(db: Database, ai: AI, console: Console) -> None:
    for row in await commands.status(db):
        console.print()
        show_insights(console, await commands.insights(db, row["user_id"]), most=TOLD)
    for question in QUESTIONS:
        console.print()
        show_hits(console, question, await commands.search(db, ai, question, limit=3))
