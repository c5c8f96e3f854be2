"""`shiftboss chaos`: inject faults into a fleet and check its guarantees."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shiftboss.extensions.chaos.places import ChaosDatabase
    from shiftboss.extensions.chaos.runner import Options

app = typer.Typer(add_completion=False)


@app.command()
def chaos(
    seed: Annotated[str | None, typer.Option(help="seed of all tasks and faults; default: random")] = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="run for this long, and until --tasks is reached")
    ] = 5.0,
    tasks: Annotated[int, typer.Option(min=0, help="enqueue at least this many tasks")] = 0,
    database_url: Annotated[
        str | None, typer.Option(help="a migrated database; default: a new embedded server")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="write the report as JSON to this file")] = None,
    without: Annotated[list[str] | None, typer.Option(help="do not inject this fault; repeatable")] = None,
    quick: Annotated[float, typer.Option(min=0, max=100, help="percentage of quick tasks")] = 90.0,
    fault_seconds: Annotated[float, typer.Option(min=0.05, help="average seconds between faults")] = 3.0,
    beside_other_tasks: Annotated[bool, typer.Option(help="use a database that has other tasks")] = False,
    clean: Annotated[
        bool, typer.Option(help="only remove the data of a killed run from --database-url")
    ] = False,
    keep: Annotated[bool, typer.Option(help="keep tables, logs and server files")] = False,
) -> None:
    """Start a fleet, enqueue tasks of every kind, inject random faults, and check every guarantee.

    Example: shiftboss chaos --seed 7 --minutes 10 --report chaos.json
    """
    from shiftboss.extension import missing
    from shiftboss.extensions.chaos.places import ChaosDatabase, EmbeddedDatabase
    from shiftboss.extensions.chaos.plan import NAMES
    from shiftboss.extensions.chaos.report import text
    from shiftboss.extensions.chaos.runner import Options
    from shiftboss.model.errors import UsageError

    if unknown := set(without or ()) - set(NAMES):
        raise UsageError(f"fault {min(unknown)!r} does not exist", hint=f"use one of {', '.join(NAMES)}")
    if clean:
        return asyncio.run(_clean(database_url))
    try:
        import grpc  # noqa: F401 -- for the workers of the coordinators
    except ModuleNotFoundError as error:
        raise missing("shiftboss chaos", "coordinator", error) from error
    options = Options(
        seed=seed or secrets.token_hex(3),
        minutes=minutes,
        tasks=tasks,
        without=tuple(without or ()),
        quick=quick / 100,
        fault_seconds=fault_seconds,
        beside=beside_other_tasks,
        keep=keep,
    )
    try:
        make = EmbeddedDatabase if database_url is None else lambda _: ChaosDatabase(database_url)
        done = asyncio.run(carry_out(make, options))
    except asyncio.CancelledError:
        raise typer.Exit(128 + signal.SIGTERM) from None
    if report is not None:
        report.write_text(json.dumps(done, indent=1, default=str) + "\n")
    print(text(done), end="")
    if not done["clean"]:
        raise typer.Exit(1)
    return None


async def carry_out(make: Callable[[Path], ChaosDatabase], options: Options) -> dict[str, Any]:
    """Run and return the report. SIGTERM ends the run early and cleans up."""
    from shiftboss.extensions.chaos.runner import ChaosRun

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    tell(f"seed {options.seed}")
    return await ChaosRun(make, options, tell).run()


async def _clean(url: str | None) -> None:
    from shiftboss.db import Database
    from shiftboss.extensions.chaos.cleaning import clean

    async with await Database.open(url) as db:
        await clean(db)


def tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
