"""`shiftboss worker`: one worker process in the foreground."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.output import LogLevel

if TYPE_CHECKING:
    from shiftboss.model.settings import Settings
    from shiftboss.worker.handlers import Handlers
    from shiftboss.worker.process import Post
    from shiftboss.worker.slot import Seat

app = typer.Typer(add_completion=False)


@app.command()
def worker(
    target: Annotated[str, typer.Argument(help="where the handlers are, as module:app")],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help="serve this queue only; repeatable")
    ] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", help="tasks at a time")] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="the worker's name; default: host and process id")
    ] = None,
    component: Annotated[str | None, typer.Option("--component", hidden=True)] = None,
    coordinator: Annotated[
        list[str] | None,
        typer.Option("--coordinator", help="be fed by this HOST:PORT, without a database; repeatable"),
    ] = None,
    log_level: LogLevel = "info",
) -> None:
    """Run one worker process until Ctrl-C. The first stops it gracefully, the second at once.

    Example: shiftboss worker mymodule:app --queue emails --concurrency 20
    """
    from shiftboss.lifecycle.logs import configure_logs
    from shiftboss.model.settings import Settings
    from shiftboss.worker.process import Post, handlers_of, load
    from shiftboss.worker.slot import seated

    settings = Settings.load()
    if concurrency is not None:
        chosen = settings.worker.model_copy(update={"concurrency": concurrency})
        settings = settings.model_copy(update={"worker": chosen})
    name = id or component or f"{socket.gethostname()}:{os.getpid()}"
    configure_logs(log_level, worker_id=name)
    post = Post(id=name, queues=queue or None)
    with seated() as seat:
        app = load(target)
        handlers = handlers_of(app)
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            if not coordinator:
                runner.run(_register_schedules(app, settings))
            runner.run(_run(post, handlers, settings, seat, coordinator or []))


async def _run(
    post: Post, handlers: Handlers, settings: Settings, seat: Seat | None, coordinators: list[str]
) -> None:
    from shiftboss.coordinator.duties import candidate
    from shiftboss.worker.process import run_worker

    source = None
    if coordinators:
        from shiftboss.coordinator.source import CoordinatorSource

        source = CoordinatorSource(coordinators, settings.coordinator)
    # A fleet of nothing but plain workers needs its rescues and schedules as well.
    plain = seat is None and source is None
    beside = partial(candidate, settings=settings, eagerness=0.2) if plain else None
    await run_worker(post, handlers, settings, source=source, seat=seat, beside=beside)


async def _register_schedules(app: object, settings: Settings) -> None:
    """An app's `@app.cron` is made known by whoever runs it."""
    if getattr(app, "schedules", None):
        from shiftboss.app.schedule import register_schedules
        from shiftboss.db import Database

        async with await Database.open(data_dir=settings.data_dir) as db:
            await register_schedules(db, app)


def _fast_loop() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
