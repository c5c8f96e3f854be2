"""`shiftboss supervise`: keep the worker processes of this host running."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.output import LogLevel
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.model.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def supervise(
    target: Annotated[str | None, typer.Argument(help="your app, as module:app")] = None,
    app_option: Annotated[str | None, typer.Option("--app", hidden=True)] = None,  # the spelling of 0.1.0
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="worker processes to keep, as queue=count; repeatable"),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="the name of this host in the fleet")] = None,
    max_memory_mb: Annotated[
        int | None, typer.Option("--max-memory-mb", min=1, help="replace a process that uses more memory")
    ] = None,
    max_tasks: Annotated[
        int | None, typer.Option("--max-tasks", min=1, help="replace a process after this many tasks")
    ] = None,
    max_age_seconds: Annotated[
        float | None, typer.Option("--max-age-seconds", help="replace a process after this time")
    ] = None,
    log_level: LogLevel = "info",
) -> None:
    """Keep a worker process running in every slot. Ctrl+C lets them finish their tasks and stops them.

    Example: shiftboss supervise mymodule:app --queue processing=4 --queue calibration=1
    """
    from shiftboss.db.connection import name_connections
    from shiftboss.lifecycle.logs import configure_logs
    from shiftboss.model.settings import Settings

    target = target or app_option
    if target is None:
        raise UsageError(
            "the app is missing", hint="for example: shiftboss supervise mymodule:app --queue mail=2"
        )
    settings = Settings.load().changed(
        "supervisor",
        host=host,
        queues=slots(queue) if queue else None,
        max_memory_mb=max_memory_mb,
        max_tasks=max_tasks,
        max_age_seconds=max_age_seconds,
    )
    if not settings.supervisor.queues:
        raise UsageError("the number of workers is missing", hint="for example: --queue processing=4")
    configure_logs(log_level)
    name_connections("supervisor")
    asyncio.run(_run(target, settings, log_level))


def slots(words: Sequence[str]) -> dict[str, int]:
    """Parse `["processing=4"]` as `{"processing": 4}`."""
    found: dict[str, int] = {}
    for word in words:
        queue, _, count = word.rpartition("=")
        if not queue or not count.isdecimal() or int(count) > 1000:
            raise UsageError(f"{word!r} is not queue=count", hint="for example: processing=4, at most 1000")
        found[queue] = int(count)
    return found


async def _run(target: str, settings: Settings, log_level: str) -> None:
    from shiftboss.db import Database
    from shiftboss.leader.autoscaler import configure
    from shiftboss.leader.duties import candidate
    from shiftboss.lifecycle.signals import stop_on_signals
    from shiftboss.lifecycle.waiting import when_up
    from shiftboss.supervisor import Supervisor

    database = settings.database
    async with await when_up(lambda: Database.open(database.url, data_dir=settings.data_dir)) as db:
        await when_up(db.installation.own)
        await when_up(lambda: configure(db, settings.autoscale))
        supervisor = Supervisor.of(db, settings, target, log_level)
        # A supervisor can lead, because a fleet without other services needs rescues and schedules too.
        with stop_on_signals(supervisor.request_stop):
            async with candidate(db, settings):
                await supervisor.start()
                await supervisor.wait()
