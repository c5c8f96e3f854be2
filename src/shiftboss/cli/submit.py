"""`shiftboss submit`: enqueue one task from a shell."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Json, TaskPriority, TaskQueue, note, parse_span, read_object, say_json
from shiftboss.cli.waiting import Timeout, waiting
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.task import Enqueued
    from shiftboss.operations import Operations
    from shiftboss.worker.handlers import Handler

app = typer.Typer(add_completion=False)


@app.command()
def submit(
    task_type: Annotated[str, typer.Argument(help="the task's name, such as shop.greet")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="arguments as name=value; values may be JSON")
    ] = None,
    params: Annotated[str | None, typer.Option("--params", help="arguments as JSON; - reads stdin")] = None,
    target: Annotated[
        str | None, typer.Option("--app", help="use the code of this module:app for checks and keys")
    ] = None,
    queue: TaskQueue = None,
    priority: TaskPriority = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="the tenant whose share, limits and budgets apply")
    ] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="earliest start, such as 30s, 5m, 2h")] = None,
    dedup_key: Annotated[
        str | None, typer.Option("--dedup-key", help="skip if an unfinished task has this key")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="wait for the result and print it")] = False,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Enqueue a task and print its id, or with --wait its result.

    Exit codes with --wait: 0 complete, 8 failed or cancelled, 9 timed out.

    Example: shiftboss submit shop.greet name=World --wait
    """
    from shiftboss.model.task import NewTask
    from shiftboss.worker.schemas import schema_of

    words, named = arguments or [], read_arguments(arguments or [], params)
    given: dict[str, Any] = {"queue": queue, "priority": priority, "tenant": tenant, "dedup_key": dedup_key}
    terms = {name: value for name, value in given.items() if value is not None}
    if delay:
        terms["delay"] = parse_span(delay)
    handler = _handler(target, task_type) if target else None

    async def do(db: Database, operations: Operations) -> None:
        if handler is not None:
            plain = handler.encode(named | _texts(words, schema_of(handler)))
            task = handler.new_task(plain, **terms)
        else:
            published = await db.schemas.get(task_type)
            texts = _texts(words, published["schema"] if published else {})
            task = NewTask(task_type=task_type, params=named | texts, **terms)
        made = await operations.enqueue(me(), task, keyed=handler is not None)
        note(made.warning)
        await _answer(db, made, wait, timeout, as_json)

    act(do)


async def _answer(db: Database, made: Enqueued, wait: bool, timeout: float | None, as_json: bool) -> None:
    if not wait:
        say_json({"id": made.id, "created": made.created}) if as_json else typer.echo(made.id)
        return
    from shiftboss.app.handle import raise_unless_complete
    from shiftboss.app.mailbox import Mailbox

    mailbox = Mailbox(db)
    try:
        async with waiting(db, lambda: made.id, timeout):
            [outcome] = await mailbox.wait([made.id])
    finally:
        await mailbox.close()
    if as_json:
        say_json(outcome._asdict())
    raise_unless_complete(outcome)
    if not as_json:
        say_json(outcome.result)


def read_arguments(words: Sequence[str], params: str | None) -> dict[str, Any]:
    """Parse `name=World count=3` as {"name": "World", "count": 3}, merged into the JSON object `params`."""
    named = {}
    if params is not None:
        given = sys.stdin.read() if params == "-" else params
        named = read_object(given, "--params", """--params '{"name": "World"}'""")
    return named | {name: value for name, _, value in map(_word, words)}


def _word(word: str) -> tuple[str, str, Any]:
    """Parse `count=3` as ("count", "3", 3): the name, the text, and the text decoded as JSON if possible."""
    import orjson

    name, equals, text = word.partition("=")
    if not equals or not name:
        raise UsageError(f"{word!r} is not name=value", hint="shiftboss submit shop.greet name=World")
    try:
        return name, text, orjson.loads(text)
    except ValueError:
        return name, text, text


def _handler(target: str, task_type: str) -> Handler:
    from shiftboss.worker.process import handlers_of, load

    return handlers_of(load(target), target).named(task_type)


def _texts(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that must stay text: `name=7` if the task's schema accepts only a string."""
    from shiftboss.model.arguments import fits

    return {
        name: text
        for name, text, value in map(_word, words)
        if value != text and fits(text, schema, name) and not fits(value, schema, name)
    }
