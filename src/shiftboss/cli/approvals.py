"""`shiftboss approvals`: list and answer the questions that tasks ask people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import Columns, Json, Row, TaskId, ask, say_json, show_rows, step_name, task_id
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.operations import Operations

app = typer.Typer(add_completion=False)

COLUMNS: Columns = {
    "task": "task_id",
    "type": "task_type",
    "step": step_name,
    "question": "question",
    "answer": lambda row: _shape(row["schema"]),
    "asked": "asked_at",
    "until": "until",
}


@app.callback(invoke_without_command=True)
def approvals(context: typer.Context, as_json: Json = False) -> None:
    """List open questions, oldest first. Answer one with `answer`."""
    if context.invoked_subcommand is None:
        found = ask(lambda db: db.steps.approvals())
        show_rows(found, COLUMNS, as_json=as_json, empty="no open questions")


@app.command()
def answer(
    id: TaskId,
    words: Annotated[list[str], typer.Argument(help="name=value, or one JSON value", metavar="ANSWER...")],
    step: Annotated[str | None, typer.Option("--step", help="which question (name or name#2)")] = None,
    as_json: Json = False,
) -> None:
    """Answer the question that a task is waiting on. The answer is checked against the question's schema.

    Example: shiftboss approvals answer 0199d3c2-5b1e ok=true comment="Well done"
    """
    from shiftboss.cli.operator import act, me

    value = parse(words)

    async def do(db: Database, operations: Operations) -> Row:
        asking = {row["task_id"] for row in await db.steps.approvals()}
        return await operations.answer(me(), await task_id(db, id, asking), value, step)

    asked = act(do)
    if as_json:
        say_json({"task_id": asked["task_id"], "name": asked["name"], "ordinal": asked["ordinal"]})
    else:
        typer.echo(f"answered: {asked['question']}")


def parse(words: list[str]) -> Any:
    """Parse one JSON value, or `ok=true comment=fine` as {"ok": true, "comment": "fine"}."""
    import orjson

    from shiftboss.cli.submit import read_arguments

    if len(words) == 1:
        try:
            return orjson.loads(words[0])
        except ValueError:
            if "=" not in words[0]:
                raise UsageError(
                    f"{words[0]!r} is neither JSON nor name=value",
                    hint="""put quotes around text: '"text"'""",
                ) from None
    return read_arguments(words, None)


def _shape(schema: Any) -> str:
    """Summarize an answer's schema, for example `ok: boolean, comment: string = null`."""
    from shiftboss.model.arguments import kind, signature

    if not isinstance(schema, dict):
        return "any JSON"
    return signature(schema) if "properties" in schema else kind(schema, schema)
