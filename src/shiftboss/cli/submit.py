"""`shiftboss submit`: enqueue one task from a shell."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Json, parse_span, say_json
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.task import NewTask
    from shiftboss.operations import Operations

app = typer.Typer(add_completion=False)


@app.command()
def submit(
    task_type: Annotated[str, typer.Argument(help="the task's name, such as shop.greet")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="arguments as name=value; values may be JSON")
    ] = None,
    params: Annotated[str | None, typer.Option("--params", help="arguments as JSON; - reads stdin")] = None,
    target: Annotated[
        str | None, typer.Option("--app", help="check the name and arguments against this module:app")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="default: that of the task")] = None,
    priority: Annotated[
        int | None,
        typer.Option("--priority", min=0, max=100, help="higher runs first; default: that of the task"),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="the tenant whose share, limits and budgets apply")
    ] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="earliest start, such as 30s, 5m, 2h")] = None,
    dedup_key: Annotated[
        str | None, typer.Option("--dedup-key", help="skip if an unfinished task has this key")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="wait for the result and print it")] = False,
    timeout: Annotated[float | None, typer.Option("--timeout", help="maximum seconds to wait")] = None,
    as_json: Json = False,
) -> None:
    """Enqueue a task and print its id, or with --wait its result.

    Exit codes with --wait: 0 complete, 8 failed or cancelled, 9 timed out.

    Example: shiftboss submit shop.greet name=World --wait
    """
    from shiftboss.model.task import NewTask

    words, named = arguments or [], read_arguments(arguments or [], params)
    terms: dict[str, Any] = {"queue": queue, "priority": priority, "tenant": tenant, "dedup_key": dedup_key}
    terms = {name: value for name, value in terms.items() if value is not None}
    if delay:
        terms["delay"] = parse_span(delay)
    task = (
        _checked(target, task_type, named, terms)
        if target
        else NewTask(task_type=task_type, params=named, **terms)
    )

    async def do(db: Database, operations: Operations) -> None:
        task.params |= await _texts(db, task_type, words)
        await _submit(db, operations, task, wait, timeout, as_json)

    act(do)


async def _submit(
    db: Database, operations: Operations, task: NewTask, wait: bool, timeout: float | None, as_json: bool
) -> None:
    made = await operations.enqueue(me(), task)
    if made.warning:
        typer.echo(f"note: {made.warning}", err=True)
    if not wait:
        say_json({"id": made.id, "created": made.created}) if as_json else typer.echo(made.id)
        return
    from shiftboss.app.handle import raise_unless_complete
    from shiftboss.app.mailbox import Mailbox

    mailbox = Mailbox(db)
    try:
        [outcome] = await mailbox.wait([made.id], timeout)
    finally:
        await mailbox.close()
    if as_json:
        say_json(outcome._asdict())
    raise_unless_complete(outcome)
    if not as_json:
        say_json(outcome.result)


def read_arguments(words: Sequence[str], params: str | None) -> dict[str, Any]:
    """Parse `name=World count=3` as {"name": "World", "count": 3}, merged into the JSON object `params`."""
    import orjson

    named: Any = {}
    if params is not None:
        try:
            named = orjson.loads(sys.stdin.read() if params == "-" else params)
        except ValueError as error:
            raise UsageError(
                f"--params is not JSON: {error}", hint="""--params '{"name": "World"}'"""
            ) from None
        if not isinstance(named, dict):
            raise UsageError("--params must be a JSON object", hint="""--params '{"name": "World"}'""")
    return {**named, **{name: value for name, _, value in map(_word, words)}}


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


def _checked(target: str, task_type: str, named: dict[str, Any], terms: dict[str, Any]) -> NewTask:
    from shiftboss.worker.process import handlers_of, load

    handler = handlers_of(load(target)).named(task_type)
    handler.bind(named)
    return handler.new_task(named, **terms)


async def _texts(db: Database, task_type: str, words: Sequence[str]) -> Mapping[str, str]:
    """Return the values that must stay text: `name=7` if the task's schema accepts only a string."""
    from shiftboss.model.arguments import fits

    published = await db.schemas.get(task_type)
    schema = published["schema"] if published else {}
    given = {name: (value, named) for name, value, named in map(_word, words)}
    return {
        name: text
        for name, (text, value) in given.items()
        if value != text and fits(text, schema, name) and not fits(value, schema, name)
    }
