"""`shiftboss worker`: run one worker process in the foreground."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.output import LogLevel
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.model.settings import Settings
    from shiftboss.worker.mark import Mark
    from shiftboss.worker.slot import SlotSpec
    from shiftboss.worker.source import Source

app = typer.Typer(add_completion=False)


@app.command()
def worker(
    target: Annotated[str, typer.Argument(help="your app, as module:app")],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help="serve this queue only; repeatable")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", help="number of tasks to run at a time")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="the worker's name; default: host and process id")
    ] = None,
    component: Annotated[str | None, typer.Option("--component", hidden=True)] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="run tasks of this engine, as NAME or NAME=ADDRESS"),
    ] = None,
    max_tasks: Annotated[
        int | None, typer.Option("--max-tasks", min=1, help="exit after this many tasks")
    ] = None,
    exit_when_empty: Annotated[
        bool, typer.Option("--exit-when-empty", help="exit when no task is ready or running")
    ] = False,
    log_level: LogLevel = "info",
) -> None:
    """Run one worker process. Ctrl+C drains it; a second Ctrl+C stops it at once.

    Example: shiftboss worker mymodule:app --queue emails --concurrency 20
    """
    from shiftboss.db.connection import name_connections
    from shiftboss.lifecycle.logs import configure_logs
    from shiftboss.lifecycle.loop import fast_loop
    from shiftboss.model.settings import Settings
    from shiftboss.worker.mark import Mark
    from shiftboss.worker.process import load
    from shiftboss.worker.slot import supervised_slot

    settings = Settings.load().changed(
        "worker",
        concurrency=concurrency,
        engine=engine,
        max_tasks=max_tasks,
        exit_when_empty=exit_when_empty or None,
    )
    name = id or component or f"{socket.gethostname()}:{os.getpid()}"
    configure_logs(log_level, worker_id=name)
    name_connections(f"worker {name}")
    with supervised_slot() as spec:
        app, mark = load(target), Mark(None if spec is None else spec.mark)
        if spec is not None and Settings.load().database.url != settings.database.url:
            raise UsageError(
                f"{target} sets a database, and its supervisor uses the embedded one",
                hint="set SHIFTBOSS_DATABASE_URL, or start the supervisor with `python manage.py shiftboss`",
            )
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            runner.run(_run(name, queue, target, app, settings, spec, mark))


async def _run(
    name: str,
    queues: list[str] | None,
    target: str,
    app: object,
    settings: Settings,
    spec: SlotSpec | None,
    mark: Mark,
) -> None:
    from shiftboss.leader.duties import candidate
    from shiftboss.worker.process import handlers_of, run_worker

    handlers, source = handlers_of(app, target), _source(settings)
    if source is None:
        await _register_schedules(app, settings, mark)
    # An unsupervised worker can lead, because a fleet of such workers needs rescues and schedules too.
    plain = spec is None and source is None
    beside = partial(candidate, settings=settings, eagerness=0.2, name=name) if plain else None
    await run_worker(name, queues, handlers, settings, mark, source=source, spec=spec, beside=beside)


def _source(settings: Settings) -> Source | None:
    """Return the source of tasks that the settings ask for, or None for the database."""
    from shiftboss.extension import extensions, load, missing

    for extension in extensions():
        for setting, target in extension.sources.items():
            if settings.value_of(setting):
                try:
                    source: Source = load(target)(settings)
                except ModuleNotFoundError as error:
                    raise missing(setting, extension.extra, error) from error
                return source
    return None


async def _register_schedules(app: object, settings: Settings, mark: Mark) -> None:
    """Register the schedules that `@app.cron` declares."""
    if getattr(app, "schedules", None):
        from shiftboss.app.schedule import register_schedules
        from shiftboss.lifecycle.waiting import when_up
        from shiftboss.worker.process import open_database

        async with await open_database(settings, mark) as db:
            await when_up(lambda: register_schedules(db, app), mark.away)
