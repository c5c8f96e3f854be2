"""`shiftboss up`: run everything in one terminal."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import LogLevel

if TYPE_CHECKING:
    from shiftboss.model.settings import Settings

app = typer.Typer(add_completion=False)

BUILT_IN = "shiftboss.app:fleet"


@app.command()
def up(
    target: Annotated[
        str, typer.Argument(help="your app, as module:app; default: the built-in tasks")
    ] = BUILT_IN,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", min=0, help="worker processes; default: one per core")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help="dedicated workers, as queue=count; repeatable")
    ] = None,
    log_level: LogLevel = "warning",
) -> None:
    """Run the database, workers and all services. Ctrl+C drains; a second Ctrl+C stops at once.

    Without SHIFTBOSS_DATABASE_URL, an embedded PostgreSQL is started. The schema is migrated first.

    Example: shiftboss up mymodule:app --workers 4
    """
    from shiftboss.db.connection import name_connections
    from shiftboss.lifecycle.logs import configure_logs
    from shiftboss.model.settings import Settings
    from shiftboss.worker.process import handlers_of, load

    configure_logs(log_level)
    name_connections("up")
    loaded = load(target)
    handlers_of(loaded, target)
    settings = _settings(Settings.load(), workers, queue)  # the app may have set the database
    asyncio.run(_up(target, loaded, settings, log_level))


def _settings(settings: Settings, workers: int | None, queue: list[str] | None) -> Settings:
    """Apply the command's options on top of the file and the environment."""
    from shiftboss.cli.supervise import slots
    from shiftboss.supervisor.supervisor import ALL

    pools = slots(queue) if queue else dict(settings.supervisor.queues)
    if workers is not None or not pools:
        pools[ALL] = workers if workers is not None else max(os.cpu_count() or 1, 1)
    return settings.changed("supervisor", queues=pools)


async def _up(target: str, loaded: Any, settings: Settings, log_level: str) -> None:
    from shiftboss.app.up import Up
    from shiftboss.db import Database
    from shiftboss.db.migrate import migrate
    from shiftboss.lifecycle.signals import stop_on_signals
    from shiftboss.lifecycle.waiting import when_up

    if (url := settings.database.url) is not None:
        await when_up(lambda: migrate(url))
    async with await when_up(lambda: Database.open(data_dir=settings.data_dir)) as db:
        _say("database", _database(settings))
        fleet = Up(target, loaded, db, settings, _say, log_level)

        def stop() -> None:
            _say("stopping", "waiting for running tasks; press Ctrl+C again to stop at once")
            fleet.request_stop()

        with stop_on_signals(stop):
            await fleet.start()
            _say("ready", "press Ctrl+C to stop")
            await fleet.wait()
        _say("stopped", "unfinished tasks stay in the queue")


def _database(settings: Settings) -> str:
    from shiftboss.cli.config import hide
    from shiftboss.db.layout import default_data_dir

    if settings.database.url is not None:
        return hide(settings.database.url)
    return f"embedded PostgreSQL in {settings.data_dir or default_data_dir()}"


def _say(what: str, words: str) -> None:
    from rich.markup import escape

    from shiftboss.cli.output import console, on_terminal

    if on_terminal():
        console().print(f"[bold cyan]{what:>11}[/]  {escape(words)}", soft_wrap=True)
    else:
        typer.echo(f"{what}: {words}")
