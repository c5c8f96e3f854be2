"""Output of commands: tables on a terminal, tab-separated lines on a pipe, JSON with --json."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, LiteralString, NamedTuple, TypeVar
from uuid import UUID

import typer

from shiftboss.model.codec import shown
from shiftboss.model.errors import NotFound, UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from shiftboss.db import Database

T = TypeVar("T")
Row = Mapping[str, Any]
#: The heading of each column, with the key of its value in a row, or a function of the row.
Columns = Mapping[str, str | Callable[[Row], Any]]

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
JsonLines = Annotated[bool, typer.Option("--json", help="one JSON object per line")]
TaskId = Annotated[str, typer.Argument(help="task id, or its first characters")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="how many to list")]
TaskQueue = Annotated[str | None, typer.Option("--queue", "-q", help="default: that of the task")]
TaskPriority = Annotated[
    int | None,
    typer.Option("--priority", min=0, max=100, help="higher runs first; default: that of the task"),
]
Every = Annotated[float, typer.Option("--every", min=0.1, help="seconds between updates")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", case_sensitive=False, help="minimum log level"),
]
MOST_CANDIDATES = 5
LONGEST_SPAN = timedelta(days=36_500)
#: Columns of tables that are never broken into two lines.
ONE_LINE = ("id", "at", "since", "until")

COLOURS = {
    "Queued": "cyan",
    "In Progress": "yellow",
    "Complete": "green",
    "Failed": "red",
    "Cancelled": "bright_black",
    "HEALTHY": "green",
}


def ask(question: Callable[[Database], Awaitable[T]]) -> T:
    """Open the database, run `question` on it and return the result."""
    from shiftboss.db import Database

    async def run() -> T:
        async with await Database.open() as db:
            return await question(db)

    return asyncio.run(run())


def count(n: int, noun: str) -> str:
    """Return the number with its noun: `1 task`, `2 tasks`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def on_terminal() -> bool:
    return sys.stdout.isatty()


def confirm(question: str) -> None:
    """Ask the user for confirmation and abort without it. Raise UsageError if there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError(f"cannot ask without a terminal: {question}", hint="add --yes to confirm")
    typer.confirm(question, abort=True)


def note(message: str | None) -> None:
    """Print a note to stderr, so that it does not mix with the output."""
    if message:
        typer.echo(f"note: {message}", err=True)


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def say_json(value: Any, *, line: bool = False) -> None:
    """Print one JSON document: indented, or on a single line with `line`."""
    import orjson

    options = orjson.OPT_NON_STR_KEYS | (0 if line else orjson.OPT_INDENT_2)
    typer.echo(orjson.dumps(value, default=_plain, option=options).decode())


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value._asdict() if hasattr(value, "_asdict") else str(value)


def show_rows(rows: Iterable[Row], columns: Columns, *, as_json: bool = False, empty: str = "") -> None:
    """Print a table on a terminal, tab-separated lines without a heading on a pipe, or JSON."""
    if as_json:
        say_json(rows)
        return
    lines = [cells(row, columns) for row in rows]
    if not on_terminal():
        say_lines(lines)
        return
    console().print(table(columns, lines) if lines else empty)


def cells(row: Row, columns: Columns) -> list[str]:
    """Return the values of a row's columns, formatted for people."""
    return [text(row[value] if isinstance(value, str) else value(row)) for value in columns.values()]


def show_facts(facts: Row, width: int) -> None:
    """Print one named value per line, without those that are empty."""
    out = console()
    for name, value in facts.items():
        if value not in (None, ""):
            out.print(f"[bold]{name:<{width}}[/] ", end="")
            out.print(text(value), markup=False, soft_wrap=True)


def say_change(name: str, state: str, changed: bool, as_json: bool) -> None:
    """Report the new state of something, and in JSON whether the command changed it."""
    say_json({"name": name, "changed": changed}) if as_json else typer.echo(f"{name} {state}")


def step_name(row: Row) -> str:
    """Return the name of a step, with its number if the task has several of that name."""
    return f"{row['name']}#{row['ordinal']}" if row["ordinal"] > 1 else str(row["name"])


def read_json(text: str, what: str, example: str) -> Any:
    """Parse JSON that the user gave as `what`."""
    import orjson

    try:
        return orjson.loads(text)
    except ValueError as error:
        raise UsageError(f"{what} is not JSON: {error}", hint=f"for example: {example}") from None


def read_object(text: str, what: str, example: str) -> dict[str, Any]:
    """Parse a JSON object that the user gave as `what`."""
    value = read_json(text, what, example)
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be a JSON object", hint=f"for example: {example}")
    return value


def say_lines(lines: Iterable[Iterable[str]]) -> None:
    """Print one tab-separated line per row, for a pipe."""
    for line in lines:
        typer.echo("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in line))


def table(heads: Iterable[str], lines: Sequence[Sequence[str]]) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        made.add_column(head, no_wrap=head in ONE_LINE)
    for line in lines:
        made.add_row(*(coloured(escape(cell)) for cell in line))
    return made


def coloured(word: str) -> str:
    colour = COLOURS.get(word)
    return f"[{colour}]{word}[/]" if colour else word


def text(value: Any) -> str:
    """Format a value for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, shown(list(value))))
    return str(shown(value))


def span(seconds: float | None) -> str:
    """Format a duration in its most readable unit."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    return f"{minutes:.0f} min" if minutes < 60 else f"{hours:.1f} h" if hours < 48 else f"{days:.0f} days"


def short_ids(ids: Sequence[UUID]) -> int:
    """Return how many characters of these task ids tell them apart. Commands accept such a prefix."""
    return next(size for size in range(10, 37) if len({str(id)[:size] for id in ids}) == len(ids))


class Ids(NamedTuple):
    """The IDs of one kind of object, and the command that lists them."""

    what: str
    table: LiteralString
    listing: str
    column: LiteralString = "id"


TASKS = Ids("task", "public.tasks", "shiftboss tasks list")


async def task_id(db: Database, word: str, among: Collection[UUID] | None = None) -> UUID:
    """Resolve a whole task id, or a unique prefix of one. `among` limits what a prefix can mean."""
    return await whole_id(db, TASKS, word, among)


async def whole_id(db: Database, ids: Ids, word: str, among: Collection[UUID] | None = None) -> UUID:
    """Resolve a whole id, or a unique prefix of one. `among` limits what a prefix can mean."""
    from shiftboss.db.ids import SHORTEST, starting_with

    try:
        return UUID(word)
    except ValueError:
        found = await starting_with(db, ids.table, word, MOST_CANDIDATES + 1, ids.column)
    if found is None:
        raise UsageError(
            f"{word!r} is not a {ids.what} id", hint=f"give its first {SHORTEST} characters or more"
        )
    if among is not None:
        digits = word.replace("-", "").lower()
        found = [id for id in among if id.hex.startswith(digits)] or found
    if not found:
        raise NotFound(f"there is no {ids.what} {word}", hint=f"`{ids.listing}` lists them")
    return only(ids.what, word, found)


def only(what: str, word: str, found: Sequence[T]) -> T:
    """Return the only match of a prefix, or raise an error that shows the first matches."""
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(str, found[:MOST_CANDIDATES])) + (", …" if len(found) > MOST_CANDIDATES else "")
    raise UsageError(
        f"more than one {what} id starts with {word}", hint=f"add more characters of the id: {shown}"
    )


def parse_span(word: str) -> timedelta:
    """Parse a duration such as `30s`, `5m`, `2h` or `7d`. A plain number means seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (word[:-1], units[word[-1]]) if word[-1:] in units else (word, 1)
    hint = "for example: 30s, 5m, 2h, 7d"
    try:
        length = timedelta(seconds=float(number) * unit)
    except (ValueError, OverflowError):
        raise UsageError(f"{word!r} is not a duration", hint=hint) from None
    if length < timedelta():
        raise UsageError(f"{word!r} is negative", hint=hint)
    if length > LONGEST_SPAN:
        raise UsageError(f"{word!r} is longer than a hundred years", hint=hint)
    return length
