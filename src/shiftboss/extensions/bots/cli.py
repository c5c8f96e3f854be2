"""`shiftboss bot`, `shiftboss runs start` and `shiftboss runs retry`."""

from __future__ import annotations

import asyncio
from typing import Annotated
from uuid import UUID

import orjson
import typer

from shiftboss.cli.operator import me, operate
from shiftboss.cli.waiting import Timeout
from shiftboss.db import Database
from shiftboss.extensions.bots.operations import BotOperations
from shiftboss.extensions.runs.cli import Id, run_id, watch_runs
from shiftboss.lifecycle.logs import configure_logs

app = typer.Typer(add_completion=False)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def bot(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="discovery, classify, verify, monitor, or your own")] = "",
) -> None:
    """Run a bot in the foreground, without a record or as the run given by --worker-run-id."""
    from shiftboss.extensions.bots.command import overview, run_bot

    if not name or name.startswith("-") or {"--help", "-h"} & set(ctx.args):
        typer.echo(overview())
        raise typer.Exit(2 if name.startswith("-") and name not in ("--help", "-h") else 0)
    configure_logs("warning")
    typer.echo(orjson.dumps(asyncio.run(run_bot(name.strip().lower(), ctx.args))))


def start(
    ctx: typer.Context,
    bot: Annotated[str, typer.Argument(help="discovery, classify, verify, monitor, or your own")],
    city: Annotated[str | None, typer.Option(help="a key of cities.yml")] = None,
    category: Annotated[str | None, typer.Option(help="a key of categories.yml")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="show its progress until it ends")] = False,
    timeout: Timeout = None,
) -> None:
    """Start a run and print its id. Other options are parameters of the bot, like --limit 200."""
    from shiftboss.extensions.bots.command import params_of

    async def run(db: Database, operations: BotOperations) -> int:
        made = await operations.start_run(me(), bot, city, category, params_of(ctx.args))
        if not made.created:
            typer.echo("the same job is already pending or running", err=True)
        typer.echo(made.id)
        return await watch_runs(db, [made.id], timeout) if watch else 0

    raise typer.Exit(operate(BotOperations, run))


def retry(id: Id) -> None:
    """Retry a run that has ended, as a new run, and print the new id."""

    async def run(db: Database, operations: BotOperations) -> UUID:
        return (await operations.retry_run(me(), await run_id(db, id))).id

    typer.echo(operate(BotOperations, run))
