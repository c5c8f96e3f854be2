"""`shiftboss journal`: import, analyse, search and export journals."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from shiftboss.cli.operator import me, operate
from shiftboss.cli.output import Json, ask, confirm, say_json
from shiftboss.cli.waiting import Timeout

if TYPE_CHECKING:
    from rich.console import Console

    from shiftboss.db import Database
    from shiftboss.extensions.journal.rows import Hit

app = typer.Typer(help="Journals: import, analyse, search, insights and export.", add_completion=False)

User = Annotated[str | None, typer.Option("--user", "-u", help="only this writer")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]
Wait = Annotated[bool, typer.Option("--wait", help="wait until the analysis has ended")]


@app.command("import")
def import_(
    paths: Annotated[
        list[Path], typer.Argument(help="JSON Lines, CSV, text or Markdown files, or folders of text")
    ],
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="the writer of records without a writer")
    ] = None,
    process: Annotated[bool, typer.Option(help="enqueue the analysis of new and changed entries")] = True,
    wait: Wait = False,
    timeout: Timeout = None,
    json: Json = False,
) -> None:
    """Import entries. Invalid lines are reported by number and skipped."""
    from rich.progress import Progress

    from shiftboss.extensions.journal.follow import follow
    from shiftboss.extensions.journal.operations import JournalOperations

    async def run(db: Database, operations: JournalOperations) -> None:
        errors = _console(stderr=True)
        with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
            bar = progress.add_task("importing", total=None)
            done = await operations.import_journal(
                me(),
                paths,
                user,
                process=process,
                on_progress=lambda so_far: progress.update(bar, completed=so_far.outcomes.total()),
            )
        for problem in done.problems:
            hint = f" ({problem.hint})" if problem.hint else ""
            typer.echo(f"{problem.path}:{problem.line}: {problem.message}{hint}", err=True)
        if json:
            say_json(done.document())
        else:
            counts = ", ".join(f"{done.outcomes[name]} {name}" for name in ("new", "changed", "same"))
            typer.echo(f"{counts}, {len(done.problems)} bad; {len(done.tasks)} tasks enqueued")
        if wait:
            _fail_if(await follow(db, done.tasks, errors, timeout))
        if done.problems:
            raise typer.Exit(1)

    operate(JournalOperations, run)


@app.command()
def process(
    user: User = None,
    again: Annotated[
        list[str] | None,
        typer.Option("--again", help="compute these results again, like embedding_generation"),
    ] = None,
    wait: Wait = False,
    timeout: Timeout = None,
    json: Json = False,
) -> None:
    """Enqueue the analysis of all entries that are not analysed yet."""
    from shiftboss.extensions.journal.follow import follow
    from shiftboss.extensions.journal.operations import JournalOperations

    async def run(db: Database, operations: JournalOperations) -> None:
        tasks = await operations.process_journal(me(), user, again or [])
        if json:
            say_json({"tasks": [str(task) for task in tasks]})
        else:
            typer.echo(f"{len(tasks)} tasks enqueued" if tasks else "all entries are analysed")
        if wait:
            _fail_if(await follow(db, tasks, _console(stderr=True), timeout))

    operate(JournalOperations, run)


@app.command()
def show(
    entry: Annotated[str, typer.Argument(help="its id or the start of it, or the id it came with")],
    user: User = None,
    json: Json = False,
) -> None:
    """Show an entry with all its results."""
    from shiftboss.extensions.journal import commands
    from shiftboss.extensions.journal.view import show_entry

    found = ask(lambda db: commands.show(db, entry, user))
    say_json(found) if json else show_entry(_console(), found)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="the text to search for")],
    user: User = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="maximum number of entries")] = 10,
    since: Annotated[datetime | None, typer.Option(help="written on this day or later")] = None,
    until: Annotated[datetime | None, typer.Option(help="written before this day")] = None,
    json: Json = False,
) -> None:
    """Search entries by meaning, best first, with their scores."""
    from shiftboss.extensions.ai.engines import engine_of
    from shiftboss.extensions.journal import commands
    from shiftboss.extensions.journal.view import show_hits

    from_, to = _aware(since), _aware(until)

    async def find(db: Database) -> list[Hit]:
        ai = await engine_of(db)
        return await commands.search(db, ai, query, user=user, limit=limit, since=from_, until=to)

    hits = ask(find)
    say_json(hits) if json else show_hits(_console(), hits)


@app.command()
def insights(
    user: Annotated[str, typer.Option("--user", "-u", help="the writer")],
    json: Json = False,
) -> None:
    """Show the findings about a writer: mood over time, people, places, themes and insights."""
    from shiftboss.extensions.journal import commands
    from shiftboss.extensions.journal.view import show_insights

    found = ask(lambda db: commands.insights(db, user))
    say_json(found) if json else show_insights(_console(), found)


@app.command()
def export(
    output: Annotated[Path | None, typer.Argument(help="a file; default: standard output")] = None,
    user: User = None,
) -> None:
    """Write all entries with their results as JSON Lines, which `journal import` can read."""
    import orjson

    from shiftboss.extensions.journal import commands

    async def write(db: Database) -> None:
        with _sink(output) as file:
            async for entry in commands.export(db, user):
                file.write(orjson.dumps(entry) + b"\n")

    ask(write)


@app.command()
def delete(
    entry: Annotated[str, typer.Argument(help="its id or the start of it, or the id it came with")],
    user: User = None,
    yes: Yes = False,
) -> None:
    """Delete an entry and all its results; the findings about its writer are computed again."""
    from shiftboss.extensions.journal.operations import JournalOperations

    if not yes:
        confirm(f"Delete the entry {entry} and all its results?")
    tasks = operate(JournalOperations, lambda _, operations: operations.delete_entry(me(), entry, user))
    typer.echo(f"deleted; {len(tasks)} tasks enqueued to update the findings about its writer")


@app.command()
def erase(
    user: Annotated[str, typer.Option("--user", "-u", help="the writer")],
    yes: Yes = False,
) -> None:
    """Delete a writer's whole journal: entries, results, people, places and insights."""
    from shiftboss.extensions.journal.operations import JournalOperations

    if not yes:
        confirm(f"Delete the whole journal of {user}? Run `shiftboss journal export` first to keep a copy.")
    entries = operate(JournalOperations, lambda _, operations: operations.erase_journal(me(), user))
    typer.echo(f"erased the journal of {user}: {entries} entries")


def _sink(output: Path | None) -> BinaryIO:
    from shiftboss.model.errors import UsageError

    if output is None:
        return open(sys.stdout.fileno(), "wb", closefd=False)
    try:
        return output.open("wb")
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}", hint="choose another file") from None


@app.command()
def status(json: Json = False) -> None:
    """Count entries, results, people, places, concepts and insights per writer."""
    from shiftboss.extensions.journal import commands
    from shiftboss.extensions.journal.view import show_status

    rows = ask(commands.status)
    say_json(rows) if json else show_status(_console(), rows)


@app.command()
def demo(timeout: Timeout = None) -> None:
    """Import a sample of three people's journals, wait for their analysis and show the findings."""
    from shiftboss.extensions.ai.engines import engine_of
    from shiftboss.extensions.journal.demo import demo

    async def run(db: Database) -> None:
        await demo(db, await engine_of(db), _console(), timeout)

    ask(run)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _aware(moment: datetime | None) -> datetime | None:
    from shiftboss.model.errors import UsageError

    try:
        return moment.astimezone() if moment else None
    except (ValueError, OverflowError):
        raise UsageError(f"the year {moment:%Y} is out of range", hint="use a later date") from None


def _fail_if(bad: list[Any]) -> None:
    for result in bad:
        typer.echo(f"task {result.id} {result.status}: {(result.error or '').splitlines()[:1]}", err=True)
    if bad:
        raise typer.Exit(1)
