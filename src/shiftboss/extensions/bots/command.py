"""Runs a bot in the foreground, without a record or as the run given by `--worker-run-id`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any
from uuid import UUID

import orjson
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from shiftboss.cli import main as shiftboss
from shiftboss.db import Database, Row
from shiftboss.extensions.bots.handlers import bot_handlers
from shiftboss.extensions.bots.order import Bots, RunOrder
from shiftboss.extensions.bots.run import Run
from shiftboss.extensions.runs.store import Runs, run_id
from shiftboss.lifecycle.signals import stop_on_signals
from shiftboss.model.errors import ShiftbossError, UsageError
from shiftboss.model.settings import Settings
from shiftboss.model.task import Claimed
from shiftboss.worker.process import member
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource


def main(name: str) -> int:
    """Run a bot with the arguments of this process, and return the exit code."""
    return shiftboss(["bot", name, *sys.argv[1:]])


async def run_bot(name: str, argv: list[str]) -> dict[str, int]:
    """Run a bot with command line arguments, and return its counters."""
    params, settings = params_of(argv), Settings.load()
    city, category, id = (params.pop(key, None) for key in ("city", "category", "worker_run_id"))
    bots = Bots.of(settings)
    async with await Database.open(settings.database.url, data_dir=settings.data_dir) as db:
        if id is None:
            return await _anonymous(db, settings, bots.check(name, city, category, params))
        run = await db.family(Runs).find(run_id(str(id)))
        order = bots.check(name, city, category, run["params"] | params)
        return await _tracked(db, settings, order, run)


def overview() -> str:
    """Return a text with all bots and their parameters."""
    lines = [
        "Usage: shiftboss bot NAME [--city KEY] [--category KEY] [--worker-run-id ID] [--PARAMETER VALUE]...",
        "",
    ]
    for bot in Bots.of(Settings.load()).by_name.values():
        lines += [f"  {bot.name:<10} {bot.description}"]
        for name, field in bot.params.model_fields.items():
            lines += [f"    --{name.replace('_', '-'):<18} {field.description or ''}"]
    return "\n".join(lines)


def params_of(words: list[str]) -> dict[str, Any]:
    """Parse `--limit 5 --websites` as {"limit": 5, "websites": true}."""
    params: dict[str, Any] = {}
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while words:
        key = words.pop(0)
        if not key.startswith("--"):
            raise UsageError(f"{key!r} is not an option", hint="write parameters as --name value")
        value = words.pop(0) if words and not words[0].startswith("--") else "true"
        params[key.removeprefix("--").replace("-", "_")] = _value(value)
    return params


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


async def _anonymous(db: Database, settings: Settings, order: RunOrder) -> dict[str, int]:
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with Progress(*columns, transient=True) as bar:
        line = bar.add_task(order.bot.name, total=100)

        async def report(percent: int, counters: Any, checkpoint: Any, message: str | None) -> None:
            text = f"{order.bot.name}: {message}" if message else order.bot.name
            bar.update(line, completed=percent, description=text)

        return await Run(order, db, settings, report).carry_out()


async def _tracked(db: Database, settings: Settings, order: RunOrder, given: Row) -> dict[str, int]:
    """Execute the run as a worker of the fleet, so that the run ends as failed if this process dies."""
    id: UUID = given["id"]
    source = _OneTask(db, await _pending(db, order, given))
    task = await db.tasks.get(source.task_id)
    handlers, queues = bot_handlers(settings), [task["queue"]] if task else []
    me = member(f"{socket.gethostname()}/bot-{os.getpid()}", queues, handlers, settings)
    once = settings.worker.model_copy(update={"max_tasks": 1, "exit_when_empty": True})
    worker = Worker(source, handlers, me, once, db=db)
    cancelling = set[asyncio.Task[None]]()
    runs = db.family(Runs)
    # An interrupted run is cancelled, so that no worker takes it over.
    with stop_on_signals(lambda: cancelling.add(asyncio.create_task(runs.cancel_run(id, "interrupted")))):
        await worker.start()
        await worker.wait()
        await asyncio.gather(*cancelling)
    run = await runs.get(id)
    if run is None or run["status"] != "finished":
        reason = run["error_message"] if run else "it was deleted"
        raise ShiftbossError(f"run {id} did not finish: {reason or (run and run['status'])}")
    return dict(run["counters"])


async def _pending(db: Database, order: RunOrder, run: Row) -> UUID:
    """Return the task of a pending run. Arguments may complete the run, but not contradict it."""
    id, params = run["id"], order.stored()
    for name, value in {"bot": order.bot.name, **order.where}.items():
        if value is not None and run[name] not in (None, value):
            raise UsageError(f"run {id} is for {name} {run[name]}, not {value}", hint=f"omit {name}")
    if params | run["params"] != params:
        raise UsageError(f"run {id} has other parameters: {run['params']}", hint="omit the parameters")
    runs = db.family(Runs)
    task_id = await runs.amend_run(id, **order.where, params=params) if run["status"] == "pending" else None
    if task_id is None:
        now = await runs.get(id) or run
        raise UsageError(f"run {id} is already {now['status']}", hint=f"run `shiftboss runs retry {id}`")
    return task_id


class _OneTask(DatabaseSource):
    """A source with a single task."""

    def __init__(self, db: Database, task_id: UUID) -> None:
        super().__init__(db)
        self.task_id = task_id

    async def claim(self, limit: int) -> list[Claimed]:
        return await self._db.tasks.assign([self.task_id], self._id)
