"""`shiftboss ai`: ask models, and show calls, templates and limits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from shiftboss.cli.output import Columns, Ids, Json, ask, on_terminal, say_json, show_rows, whole_id
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.model.errors import NotFound, UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.db.database import Row
    from shiftboss.extensions.ai import AI
    from shiftboss.extensions.ai.ask import Ask

app = typer.Typer(
    help="Ask AI models, and look up calls and limits.", add_completion=False, no_args_is_help=True
)
T = TypeVar("T")
CALLS = Ids("call", "shiftboss.ai_calls", "shiftboss ai calls", "call_id")
#: The columns of `calls` on a terminal, which must fit into 80 characters.
NARROW: Columns = {
    "call": lambda row: str(row["call_id"])[:6],
    "at": lambda row: f"{row['started_at']:%H:%M}",
    "model": lambda row: f"{row['provider']} {row['model']}",
    "type": "task_type",
    "tenant": "tenant",
    "outcome": "outcome",
    "tokens": lambda row: row["prompt_tokens"] + row["completion_tokens"],
    "cost": lambda row: f"${row['cost']:.6f}",
}
Model = Annotated[str | None, typer.Option("--model", "-m", help="a model from the settings, or a provider")]


@app.command()
def complete(
    prompt: Annotated[str | None, typer.Argument(help="the prompt; - reads it from stdin")] = None,
    model: Model = None,
    template: Annotated[str | None, typer.Option("--template", "-t", help="a prompt template")] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option("--var", "-v", metavar="NAME=VALUE", help="a template variable; repeatable"),
    ] = None,
    system: Annotated[str | None, typer.Option(help="a system prompt")] = None,
    need: Annotated[
        Literal["advanced", "standard", "basic"], typer.Option(help="how capable a model to use")
    ] = "standard",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="maximum length of the answer")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=2, help="0 is the most likely answer")
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="seconds for one call")] = None,
    tenant: Annotated[str | None, typer.Option(help="the tenant whose limits and budget apply")] = None,
    cache: Annotated[bool, typer.Option(help="use a cached answer if there is one")] = True,
    as_json: Json = False,
) -> None:
    """Ask a model and print the answer as it arrives.

    Example: shiftboss ai complete "Three names for a cat" --model openai
    """
    from shiftboss.extensions.ai import Need

    asked: Ask = {
        "model": model, "need": Need(need), "max_tokens": max_tokens, "temperature": temperature,
        "timeout": timeout, "tenant": tenant,
    }  # fmt: skip
    if template is not None:
        asked |= {"template": template, "variables": _variables(variable or [])}
    if system is not None:
        asked["system"] = system
    if not cache:
        asked["cache"] = False
    _with_engine(lambda ai: _complete(ai, sys.stdin.read() if prompt == "-" else prompt, asked, as_json))


async def _complete(ai: AI, prompt: str | None, asked: Ask, as_json: bool) -> None:
    stream = ai.stream(prompt, **asked)
    async for piece in stream:
        if not as_json:
            typer.echo(piece, nl=False)
    answer = stream.answer
    if not as_json:
        typer.echo()
        return
    usage = answer.usage
    say_json(
        {"text": answer.text, "provider": answer.provider, "model": answer.model, "cached": answer.cached,
         "finish_reason": answer.finish_reason, "prompt_tokens": usage.prompt_tokens,
         "completion_tokens": usage.completion_tokens, "cost": usage.cost, "call_id": answer.call_id,
         "template": answer.template, "template_version": answer.template_version}
    )  # fmt: skip


def _variables(words: list[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise UsageError(f"{word!r} is not NAME=VALUE", hint="for example: --var text=Hello")
    return dict(word.split("=", 1) for word in words)


@app.command()
def embed(
    texts: Annotated[list[str], typer.Argument(help="the texts to embed")],
    model: Model = None,
    provider: Annotated[str | None, typer.Option(help="default: ai.embedding_provider")] = None,
) -> None:
    """Print one vector per text, as JSON lines."""

    async def make(ai: AI) -> list[list[float]]:
        rows: list[list[float]] = (await ai.embed(texts, model, provider)).vectors.tolist()
        return rows

    for row in _with_engine(make):
        say_json(row, line=True)


@app.command()
def models(as_json: Json = False) -> None:
    """Show the available models with their deployments and context windows."""

    async def look(ai: AI) -> list[dict[str, Any]]:
        plain = [(each.name, each, 1.0) for each in ai.router.providers.values()]
        named = [(m.name, d.provider, d.weight) for m in ai.router.models.values() for d in m.deployments]
        return [
            {"model": name, "deployment": each.name, "serves": each.model, "weight": weight,
             "context_window": getattr(each, "context_window", None)}
            for name, each, weight in named + plain
        ]  # fmt: skip

    _show(_with_engine(look), as_json, "model", "deployment", "serves", "weight", "context_window")


@app.command()
def templates(as_json: Json = False) -> None:
    """Show the prompt templates with their versions, variables and files."""
    from shiftboss.extensions.ai.prompts import Prompts
    from shiftboss.model.settings import Settings

    rows = [
        {"template": each.name, "version": each.version, "file": str(each.path),
         "variables": [name if needed else f"{name} (optional)" for name, needed in each.variables.items()]}
        for each in Prompts(AISettings.of(Settings.load()).prompts).all()
    ]  # fmt: skip
    _show(rows, as_json, "template", "version", "variables", "file")


@app.command()
def calls(
    task: Annotated[str | None, typer.Option(help="only calls of this task id")] = None,
    tenant: Annotated[str | None, typer.Option(help="only calls of this tenant")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="only calls with this outcome: ok, cached, malformed, limited …")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="maximum number of calls")] = 20,
    as_json: Json = False,
) -> None:
    """Show the latest calls with their provider, outcome, tokens and cost.

    With --task, the total of the task and its child tasks is printed to stderr.
    """
    from shiftboss.cli.output import count, task_id

    async def look(db: Database) -> tuple[list[Row], Row | None]:
        engine, id = db.family(AIEngine), await task_id(db, task) if task is not None else None
        found = await engine.calls(limit=limit, task_id=id, tenant=tenant, outcome=outcome)
        return found, None if id is None else await engine.task_cost(id)

    found, total = ask(look)
    rows = [{**row, "cost": float(row["cost"])} for row in found]
    if on_terminal() and not as_json:
        unused = {"tenant"} if not any(row["tenant"] for row in rows) else set()
        show_rows(rows, {name: NARROW[name] for name in NARROW if name not in unused}, empty="none")
    else:
        _show(rows, as_json, "call_id", "started_at", "provider", "model", "task_type", "tenant", "outcome",
              "prompt_tokens", "completion_tokens", "cost", "latency_ms")  # fmt: skip
    if total is not None:
        typer.echo(
            f"total of the task and its {count(total['tasks'] - 1, 'child task')}: "
            f"{count(total['calls'], 'call')}, {total['tokens']} tokens, ${total['cost']:f}",
            err=True,
        )


@app.command()
def show(call: Annotated[str, typer.Argument(help="call id, or its first characters")]) -> None:
    """Show one call as JSON: prompt, answer, tokens, cost and latency."""

    async def look(db: Database) -> Row | None:
        return await db.family(AIEngine).call(await whole_id(db, CALLS, call))

    found = ask(look)
    if found is None:
        raise NotFound(f"there is no call {call}", hint="run `shiftboss ai calls` to list the latest calls")
    latency = found["latency_ms"]
    say_json({**found, "cost": float(found["cost"]), "latency_ms": latency and round(latency, 1)})


@app.command()
def limits(as_json: Json = False) -> None:
    """Show the limits of tenants, task types and keys, and their use today."""
    rows = [
        {**row, "spend_today": float(row["spend_today"])}
        for row in ask(lambda db: db.family(AIEngine).ai_limit_status())
    ]
    _show(rows, as_json, "scope", "name", "spend_today", "daily_budget", "calls_today", "tokens_today",
          "requests_per_minute", "tokens_per_minute")  # fmt: skip


@app.command()
def limit(
    scope: Annotated[Literal["tenant", "task_type", "key"], typer.Argument(help="tenant, task_type or key")],
    name: Annotated[str, typer.Argument(help="its name; '*' applies to each one without its own limit")],
    daily_budget: Annotated[float | None, typer.Option(min=0, help="US dollars a day (UTC)")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="calls per minute")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(min=1, help="tokens per minute")] = None,
) -> None:
    """Limit a tenant, task type or key for the whole fleet. Without options, remove its limits.

    Example: shiftboss ai limit tenant acme --daily-budget 5 --requests-per-minute 60
    """
    from shiftboss.cli.operator import me, operating
    from shiftboss.extensions.ai.operations import AIOperations

    async def set_limit() -> None:
        async with operating(AIOperations) as (_, operations):
            await operations.set_ai_limit(
                me(), scope, name, daily_budget=daily_budget, requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
            )  # fmt: skip

    asyncio.run(set_limit())


def _show(rows: list[dict[str, Any]], as_json: bool, *columns: str) -> None:
    if as_json:
        say_json(rows)
        return
    show_rows(rows, {name.replace("_", " "): itemgetter(name) for name in columns}, empty="none")


def _with_engine(work: Callable[[AI], Awaitable[T]]) -> T:
    from shiftboss.extensions.ai.engines import engine_of

    async def run(db: Database) -> T:
        return await work(await engine_of(db))

    return ask(run)
