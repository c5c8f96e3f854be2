"""The main of a worker process: load the handlers, join the fleet, run until a signal."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psutil
import structlog

from shiftboss import __version__
from shiftboss.db import Database
from shiftboss.db.layout import default_data_dir
from shiftboss.lifecycle import Service
from shiftboss.lifecycle.signals import stop_on_signals
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss.model.worker import Capabilities, Member, ResourceLimits
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.hooks import Hooks
from shiftboss.worker.runtime import Worker
from shiftboss.worker.slot import Seat, SlotBeat
from shiftboss.worker.source import DatabaseSource, Source
from shiftboss.worker.tracking import Tracker

log = structlog.get_logger()

GB = 1024**3


@dataclass(frozen=True, kw_only=True)
class Post:
    """Which worker this process is."""

    id: str
    queues: list[str] | None = None


def load(target: str) -> Any:
    """The object that `module:name` names; the working directory can be imported from."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise UsageError(
            f"{target!r} does not name an app", hint="write it as module:name, like mymodule:app"
        )
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            hint = "run it in the project's directory"
            raise UsageError(f"there is no module {error.name!r} here", hint=hint) from None
        raise
    except AttributeError:
        raise UsageError(f"module {module!r} has no {name!r}") from None


def handlers_of(value: Any) -> Handlers:
    """An app's handlers; a bare Handlers will do."""
    handlers = value if isinstance(value, Handlers) else getattr(value, "handlers", None)
    if not isinstance(handlers, Handlers):
        raise UsageError(f"{value!r} is neither an App nor Handlers")
    return handlers


def member(post: Post, handlers: Handlers, settings: Settings, incarnation: UUID | None = None) -> Member:
    """What this process tells the fleet about itself."""
    worker = settings.worker
    return Member(
        id=post.id,
        instance_type="process",
        queues=post.queues,
        capabilities=Capabilities(
            task_types=sorted(handler.name for handler in handlers),
            ai_providers=list(worker.ai_providers),
            max_concurrent_tasks=worker.concurrency,
            processing_speed=worker.speed,
            specialized_features=list(worker.features),
        ),
        resource_limits=ResourceLimits(
            cpu_cores=os.cpu_count() or 1,
            memory_gb=round(psutil.virtual_memory().total / GB, 1),
            gpu_available=worker.gpu,
        ),
        region=worker.region,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        incarnation=incarnation,
        lease_seconds=worker.lease_seconds,
    )


async def run_worker(
    post: Post,
    handlers: Handlers,
    settings: Settings,
    *,
    source: Source | None = None,
    hooks: Hooks | None = None,
    seat: Seat | None = None,
    beside: Callable[[Database], Service] | None = None,
) -> None:
    """Run one worker until a signal or a drain. With a `source` of another room no database is opened.

    A worker that a supervisor started has a `seat`, and keeps its row in `health`. `beside` makes a service
    that runs as long as the worker does.
    """
    if source is not None and seat is None:
        await _run(_worker(source, post, handlers, settings, hooks), post)
        return
    database = settings.database
    async with await Database.open(data_dir=settings.data_dir) as db:
        if source is None:
            source = DatabaseSource(db, listen_url=database.direct_url, listening=settings.worker.listen)
        async with Tracker(db, settings.worker.beat_seconds) as tracker:
            hooks = hooks or Hooks()
            hooks.listen(tracker.note)
            worker = _worker(source, post, handlers, settings, hooks, db, tracker.id)
            beat = SlotBeat.of(seat, worker, db, settings.worker.beat_seconds) if seat is not None else None
            async with beside(db) if beside is not None else nullcontext():
                await _run(worker, post, beat)


def _worker(
    source: Source,
    post: Post,
    handlers: Handlers,
    settings: Settings,
    hooks: Hooks | None,
    db: Database | None = None,
    incarnation: UUID | None = None,
) -> Worker:
    return Worker(
        source,
        handlers,
        member(post, handlers, settings, incarnation),
        settings.worker,
        db=db,
        hooks=hooks,
        spool_dir=(settings.data_dir or default_data_dir()) / "spool",
    )


async def _run(worker: Worker, post: Post, beat: SlotBeat | None = None) -> None:
    # What was loaded by now stays for good: no collection needs to walk it. Tasks come in batches, and at the
    # usual threshold of 700 objects a seventh of a busy worker's time went into looking through them.
    gc.freeze()
    gc.set_threshold(20_000)
    with stop_on_signals(worker.request_stop):
        if beat is not None:
            await beat.register()
        await worker.start()
        if beat is not None:
            await beat.start()
        log.info("worker is ready", worker_id=post.id, queues=post.queues or "all")
        await worker.wait()
        if beat is not None:
            await beat.remove()
    log.info(
        "worker has left", worker_id=post.id, completed=worker.tally.completed, failed=worker.tally.failed
    )
