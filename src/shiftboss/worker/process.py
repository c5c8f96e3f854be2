"""The main of a worker process: loads the handlers, joins the fleet, runs until a signal."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from shiftboss import __version__
from shiftboss.db import Database
from shiftboss.db.layout import default_data_dir
from shiftboss.lifecycle import Service
from shiftboss.lifecycle.processes import age
from shiftboss.lifecycle.signals import stop_on_signals
from shiftboss.lifecycle.waiting import when_up
from shiftboss.log import get_logger
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss.model.worker import Capabilities, Member, ResourceLimits
from shiftboss.worker.engines import engine_of, feature
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.mark import Mark
from shiftboss.worker.presence import Presence
from shiftboss.worker.runtime import Worker
from shiftboss.worker.slot import SlotRow, SlotSpec
from shiftboss.worker.source import DatabaseSource, Source
from shiftboss.worker.spool import shared_reports, take_over
from shiftboss.worker.tracking import Tracker

log = get_logger(__name__)

GB = 1024**3
#: A handler blocked the event loop. The watchdog has reported it; only the end of the process stops it.
EXIT_BLOCKED = 71


def load(target: str) -> Any:
    """Import the object that `module:name` names, from the working directory or an installed package."""
    module, _, name = target.partition(":")
    if not module or not name or "/" in module:
        like = module.removesuffix(".py").replace("/", ".") if "/" in module else "mymodule"
        raise UsageError(
            f"{target!r} does not name an app", hint=f"write it as module:name, like {like}:{name or 'app'}"
        )
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _not_found(module, error) from error
    try:
        return getattr(found, name)
    except AttributeError:
        raise UsageError(f"module {module!r} has no {name!r}", hint=_apps_in(module)) from None


def _not_found(module: str, error: ModuleNotFoundError) -> Exception:
    """Explain which module is missing: the app's, or one that it imports."""
    name = error.name or ""
    if f"{module}.".startswith(f"{name}."):
        # Python names the outermost package that it cannot find.
        hint = "check the spelling" if "." in name else "run the command in the project's directory"
        return UsageError(f"there is no module {name!r}", hint=hint)
    if name.startswith("shiftboss"):
        return error
    return UsageError(
        f"{module} needs the module {name!r}, which cannot be found",
        hint="install it, check the spelling, or run the command in the project's directory",
    )


def handlers_of(value: Any, target: str = "") -> Handlers:
    """Return the handlers of an app, or of a plain `Handlers`. `target` is its name for errors."""
    handlers = _handlers(value)
    if handlers is None:
        raise UsageError(
            f"{target or 'this'} is not an App: it is of type {type(value).__name__}",
            hint=_apps_in(target.partition(":")[0]),
        )
    return handlers


def _handlers(value: Any) -> Handlers | None:
    if isinstance(value, Handlers):
        return value
    found = None if isinstance(value, type) else getattr(value, "handlers", None)
    return found if isinstance(found, Handlers) else None


def _apps_in(module: str) -> str:
    """Return a hint that names the apps in a module."""
    inside = vars(sys.modules[module]) if module in sys.modules else {}
    apps = [f"{module}:{name}" for name, value in inside.items() if _handlers(value) is not None]
    if not apps:
        return 'define an App: app = App("shop")'
    return f"did you mean {' or '.join(apps)}?"


def member(
    id: str,
    queues: list[str] | None,
    handlers: Handlers,
    settings: Settings,
    incarnation: UUID | None = None,
    engine: str | None = None,
) -> Member:
    """Return the registration of this process, which serves these queues (None: all) and this engine."""
    worker, handlers = settings.worker, handlers.of_engine(engine)
    return Member(
        id=id,
        instance_type="process",
        queues=queues,
        capabilities=Capabilities(
            task_types=sorted(handler.name for handler in handlers),
            versions={handler.name: handler.versions for handler in handlers if handler.versions},
            ai_providers=list(worker.ai_providers),
            max_concurrent_tasks=worker.concurrency,
            processing_speed=worker.speed,
            specialized_features=[*worker.features, *([feature(engine)] if engine else [])],
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
        age_seconds=age(),
        schemas=handlers.schemas(),
    )


async def open_database(settings: Settings, mark: Mark) -> Database:
    """Open the database, and wait for it while it is away."""
    return await when_up(lambda: Database.open(data_dir=settings.data_dir), mark.away)


async def run_worker(
    id: str,
    queues: list[str] | None,
    handlers: Handlers,
    settings: Settings,
    mark: Mark,
    *,
    source: Source | None = None,
    spec: SlotSpec | None = None,
    beside: Callable[[Database], Service] | None = None,
) -> None:
    """Run one worker until a signal or a drain.

    With a `source` and without a `spec`, it opens no database. A `spec` comes from a supervisor; the worker
    then updates its row in `health`. `beside` creates a service that runs as long as the worker does.
    """

    def worker(source: Source, db: Database | None = None, tracker: Tracker | None = None) -> Worker:
        engine = engine_of(settings)
        incarnation = None if tracker is None else tracker.id
        return Worker(
            source,
            handlers,
            member(id, queues, handlers, settings, incarnation, engine.name if engine else None),
            settings.worker,
            engine=engine,
            db=db,
            on_ended=None if tracker is None else tracker.note,
            spool_dir=_spool_dir(settings),
            mark=mark,
            on_blocked=partial(_end_blocked, spec),
        )

    if source is not None and spec is None:
        await _run(worker(source))
        return
    async with await open_database(settings, mark) as db:
        identity = await when_up(db.installation.own, mark.away)
        await when_up(lambda: db.tasks.declare_limits(handlers.limits()), mark.away)
        if source is None:
            await when_up(lambda: _take_over_reports(db, _spool_dir(settings), str(identity.id)), mark.away)
            source = DatabaseSource(
                db,
                listen_url=settings.database.direct_url,
                listening=settings.worker.listen,
                spool=str(identity.id),
            )
        async with Tracker(db, settings.worker.beat_seconds) as tracker:
            made = worker(source, db, tracker)
            slot = SlotRow(db, spec, made) if spec is not None else None
            presence = Presence(db, tracker, slot, every=settings.worker.beat_seconds, on_away=mark.away)
            async with beside(db) if beside is not None else nullcontext():
                await _run(made, slot, _carried(presence, source))


def _end_blocked(spec: SlotSpec | None, reason: str) -> None:
    if spec is not None:
        spec.say(reason)
    os._exit(EXIT_BLOCKED)


def _spool_dir(settings: Settings) -> Path:
    return (settings.data_dir or default_data_dir()) / "spool"


async def _take_over_reports(db: Database, spool: Path, fleet: str) -> None:
    """Take over report files of version 0.1. A file belongs to this fleet if one of its tasks is here."""
    for path, tasks in shared_reports(spool).items():
        query = "SELECT EXISTS (SELECT FROM public.tasks WHERE id = ANY (%s))"
        if await db.value(bool, query, [tasks]):
            take_over(path, spool / fleet)


def _carried(presence: Presence, source: Source) -> Presence | None:
    """Let the worker's heartbeat update the rows if it goes to the database; otherwise return `presence`."""
    if not isinstance(source, DatabaseSource):
        return presence
    source.presence = presence
    return None


async def _run(worker: Worker, slot: SlotRow | None = None, presence: Presence | None = None) -> None:
    # Modules stay loaded, so exclude them from garbage collection. With the default threshold of 700 objects,
    # collections took a seventh of a busy worker's time.
    gc.freeze()
    gc.set_threshold(20_000)
    with stop_on_signals(worker.request_stop):
        if slot is not None:
            await when_up(slot.register, stopping=worker.stopping)
        await worker.start()
        async with presence or nullcontext():
            log.info("worker ready", worker_id=worker.id, queues=worker.queues or "all")
            await worker.wait()
        if slot is not None:
            await slot.remove()
    done = worker.counters
    log.info("worker stopped", worker_id=worker.id, completed=done.completed, failed=done.failed)
