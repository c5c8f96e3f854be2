"""`shiftboss journal`: import, analyse, search and export journals."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ParamSpec

import typer

from shiftboss.cli.operator import me, operating
from shiftboss.cli.output import confirm
from shiftboss.cli.waiting import Timeout
from shiftboss.extensions.ai.settings import AISettings

if TYPE_CHECKING:
    from rich.console import Console

    from shiftboss.db import Database
    from shiftboss.extensions.ai import AI
    from shiftboss.extensions.journal.operations import JournalOperations

app = typer.Typer(help="Journals: import, analyse, search, insights and export.", add_completion=False)

P = ParamSpec("P")


def command(name: str | None = None) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], None]:
    """Register an asynchronous command."""

    def register(act: Callable[P, Coroutine[Any, Any, None]]) -> None:
        @app.command(name)
        @wraps(act)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            asyncio.run(act(*args, **kwargs))

    return register


Json = Annotated[bool, typer.Option("--json", help="print JSON")]
User = Annotated[str | None, typer.Option("--user", "-u", help="only this writer")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]
Wait = Annotated[bool, typer.Option("--wait", help="wait until the analysis has ended")]


@command("import")
async def import_(
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

    async with _operating() as (db, operations):
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
            _print_json(done.document())
        else:
            counts = ", ".join(f"{done.outcomes[name]} {name}" for name in ("new", "changed", "same"))
            typer.echo(f"{counts}, {len(done.problems)} bad; {len(done.tasks)} tasks enqueued")
        if wait:
            _fail_if(await follow(db, done.tasks, errors, timeout))
        if done.problems:
            raise typer.Exit(1)


@command()
async def process(
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

    async with _operating() as (db, operations):
        tasks = await operations.process_journal(me(), user, again or [])
        if json:
            _print_json({"tasks": [str(task) for task in tasks]})
        else:
            typer.echo(f"{len(tasks)} tasks enqueued" if tasks else "all entries are analysed")
        if wait:
            _fail_if(await follow(db, tasks, _console(stderr=True), timeout))


@command()
async def show(
    entry: Annotated[str, typer.Argument(help="its id or the start of it, or the id it came with")],
    user: User = None,
    json: Json = False,
) -> None:
    """Show an entry with all its results."""
    from shiftboss.extensions.journal import commands
    from shiftboss.extensions.journal.view import show_entry

    async with _database() as db:
        found = await commands.show(db, entry, user)
    _print_json(found) if json else show_entry(_console(), found)


@command()
async def search(
    query: Annotated[str, typer.Argument(help="the text to search for")],
    user: User = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="maximum number of entries")] = 10,
    since: Annotated[datetime | None, typer.Option(help="written on this day or later")] = None,
    until: Annotated[datetime | None, typer.Option(help="written before this day")] = None,
    json: Json = False,
) -> None:
    """Search entries by meaning, best first, with their scores."""
    from shiftboss.extensions.journal import commands
    from shiftboss.extensions.journal.view import show_hits

    async with _database() as db, _ai(db) as ai:
        hits = await commands.search(
            db, ai, query, user=user, limit=limit, since=_aware(since), until=_aware(until)
        )
    _print_json(hits) if json else show_hits(_console(), hits)


@command()
async def insights(
    user: Annotated[str, typer.Option("--user", "-u", help="the writer")],
    json: Json = False,
) -> None:
    """Show the findings about a writer: mood over time, people, places, themes and insights."""
    from shiftboss.extensions.journal import commands
    from shiftboss.extensions.journal.view import show_insights

    async with _database() as db:
        found = await commands.insights(db, user)
    _print_json(found) if json else show_insights(_console(), found)


@command()
async def export(
    output: Annotated[Path | None, typer.Argument(help="a file; default: standard output")] = None,
    user: User = None,
) -> None:
    """Write all entries with their results as JSON Lines, which `journal import` can read."""
    import orjson

    from shiftboss.extensions.journal import commands

    async with _database() as db:
        with _sink(output) as file:
            async for entry in commands.export(db, user):
                file.write(orjson.dumps(entry) + b"\n")


@command()
async def delete(
    entry: Annotated[str, typer.Argument(help="its id or the start of it, or the id it came with")],
    user: User = None,
    yes: Yes = False,
) -> None:
    """Delete an entry and all its results; the findings about its writer are computed again."""
    if not yes:
        confirm(f"Delete the entry {entry} and all its results?")
    async with _operating() as (_, operations):
        tasks = await operations.delete_entry(me(), entry, user)
    typer.echo(f"deleted; {len(tasks)} tasks enqueued to update the findings about its writer")


@command()
async def erase(
    user: Annotated[str, typer.Option("--user", "-u", help="the writer")],
    yes: Yes = False,
) -> None:
    """Delete a writer's whole journal: entries, results, people, places and insights."""
    if not yes:
        confirm(f"Delete the whole journal of {user}? Run `shiftboss journal export` first to keep a copy.")
    async with _operating() as (_, operations):
        entries = await operations.erase_journal(me(), user)
    typer.echo(f"erased the journal of {user}: {entries} entries")


def _sink(output: Path | None) -> BinaryIO:
    from shiftboss.model.errors import UsageError

    if output is None:
        return open(sys.stdout.fileno(), "wb", closefd=False)
    try:
        return output.open("wb")
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}", hint="choose another file") from None


@command()
async def status(json: Json = False) -> None:
    """Count entries, results, people, places, concepts and insights per writer."""
    from shiftboss.extensions.journal import commands
    from shiftboss.extensions.journal.view import show_status

    async with _database() as db:
        rows = await commands.status(db)
    _print_json(rows) if json else show_status(_console(), rows)


@command()
async def demo(timeout: Timeout = None) -> None:
    """Import a sample of three people's journals, wait for their analysis and show the findings."""
    from shiftboss.extensions.journal.demo import demo

    async with _database() as db, _ai(db) as ai:
        await demo(db, ai, _console(), timeout)


@asynccontextmanager
async def _database() -> AsyncIterator[Database]:
    from shiftboss.db import Database

    async with await Database.open() as db:
        yield db


@asynccontextmanager
async def _operating() -> AsyncIterator[tuple[Database, JournalOperations]]:
    from shiftboss.extensions.journal.operations import JournalOperations

    async with operating(JournalOperations) as opened:
        yield opened


@asynccontextmanager
async def _ai(db: Database) -> AsyncIterator[AI]:
    from shiftboss.extensions.ai import AI
    from shiftboss.model.settings import Settings

    async with await AI.open(AISettings.of(Settings.load()), db) as ai:
        yield ai


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _print_json(value: Any) -> None:
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode())


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
