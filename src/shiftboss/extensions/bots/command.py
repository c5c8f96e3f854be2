"""Runs a bot in the foreground, without a record or as the run given by `--worker-run-id`."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import orjson
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from shiftboss.cli.operator import run_id
from shiftboss.db import Database, Row
from shiftboss.extensions.bots.catalog import Catalog
from shiftboss.extensions.bots.handlers import bot_handlers, carry_out
from shiftboss.extensions.bots.order import Order, check
from shiftboss.extensions.bots.registry import load_bots
from shiftboss.extensions.bots.run import Run
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.runs.store import Runs
from shiftboss.lifecycle.logs import configure_logs
from shiftboss.lifecycle.signals import stop_on_signals
from shiftboss.model.errors import ShiftbossError, UsageError
from shiftboss.model.settings import Settings
from shiftboss.model.task import Claimed, Report
from shiftboss.worker.process import WorkerName, member
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run a bot with command line arguments, and return the exit code."""
    configure_logs("warning")
    try:
        return asyncio.run(run_bot(name, list(sys.argv[1:] if argv is None else argv)))
    except ShiftbossError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


async def run_bot(name: str, argv: list[str]) -> int:
    options, params = parse(name, argv)
    settings = Settings.load()
    catalog = Catalog(BotsSettings.of(settings).config_dir)
    bots = load_bots(BotsSettings.of(settings).modules)
    async with await Database.open(settings.database.url, data_dir=settings.data_dir) as db:
        run = None if options.worker_run_id is None else await _run(db, options.worker_run_id)
        if run is not None:
            params = run["params"] | params
        order = check(bots, catalog, name, options.city, options.category, params)
        if run is not None:
            return await _tracked(db, settings, order, run)
        return await _anonymous(db, settings, catalog, order)


def overview() -> str:
    """Return a text with all bots and their parameters."""
    lines = [
        "Usage: shiftboss bot NAME [--city KEY] [--category KEY] [--worker-run-id ID] [--PARAMETER VALUE]...",
        "",
    ]
    for bot in load_bots(BotsSettings.of(Settings.load()).modules):
        lines += [f"  {bot.name:<10} {bot.description}"]
        for name, field in bot.params.model_fields.items():
            lines += [f"    --{name.replace('_', '-'):<18} {field.description or ''}"]
    return "\n".join(lines)


def parse(name: str, argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the common options and the bot's parameters: `--limit 5` is {"limit": 5}."""
    parser = argparse.ArgumentParser(
        prog=f"shiftboss bot {name}", epilog="Other options are parameters of the bot, like --limit 200."
    )
    parser.add_argument("--city", help="a key of cities.yml; default: all")
    parser.add_argument("--category", help="a key of categories.yml; default: all")
    parser.add_argument("--worker-run-id", help="a pending run to execute; default: nothing is recorded")
    options, rest = parser.parse_known_args(argv)
    return options, params_of(rest)


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


async def _anonymous(db: Database, settings: Settings, catalog: Catalog, order: Order) -> int:
    with _bar() as bar:
        tracker = _Terminal(bar, order.bot.name)
        run = Run(
            bot=order.bot.name,
            db=db,
            settings=settings,
            catalog=catalog,
            tracker=tracker,
            city=order.city,
            category=order.category,
        )
        done = await carry_out(run, order)
    print(orjson.dumps(done["counters"]).decode())
    return 0


def _bar() -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), transient=True)


class _Terminal:
    def __init__(self, bar: Progress, name: str) -> None:
        self._bar, self._name = bar, name
        self._line = bar.add_task(name, total=100)

    async def report(
        self, percent: int, counters: dict[str, int], checkpoint: dict[str, Any] | None, message: str | None
    ) -> None:
        text = f"{self._name}: {message}" if message else self._name
        self._bar.update(self._line, completed=percent, description=text)


async def _tracked(db: Database, settings: Settings, order: Order, given: Row) -> int:
    """Execute the run as a worker of the fleet, so that the run ends as failed if this process dies."""
    id: UUID = given["id"]
    task_id = await _pending(db, order, given)
    handlers = bot_handlers(settings)
    task = await db.tasks.get(task_id)
    queues = [task["queue"]] if task else []
    me = member(WorkerName(id=f"{socket.gethostname()}/bot-{os.getpid()}", queues=queues), handlers, settings)
    source = _OneTask(db, task_id)
    worker = Worker(source, handlers, me, settings.worker, db=db)
    source.worker = worker
    interrupt = asyncio.Event()
    with stop_on_signals(interrupt.set):
        await worker.start()
        canceller = asyncio.create_task(_cancel_on(interrupt, db, id))
        await worker.wait()
        canceller.cancel()
    run = await db.family(Runs).get(id)
    if run is None or run["status"] != "finished":
        reason = run["error_message"] if run else "it was deleted"
        raise ShiftbossError(f"run {id} did not finish: {reason or (run and run['status'])}")
    print(orjson.dumps(run["counters"]).decode())
    return 0


async def _cancel_on(interrupt: asyncio.Event, db: Database, id: UUID) -> None:
    """Cancel the run when the command is interrupted, so that no worker takes it over."""
    await interrupt.wait()
    await db.family(Runs).cancel_run(id, "interrupted")


async def _run(db: Database, given: str) -> Row:
    run = await db.family(Runs).get(run_id(given))
    if run is None:
        raise UsageError(f"there is no run {given}", hint="start one with `shiftboss runs start`")
    return run


async def _pending(db: Database, order: Order, run: Row) -> UUID:
    """Return the task of a pending run. Arguments may complete the run, but not contradict it."""
    id, params = run["id"], order.stored()
    city = order.city.key if order.city else None
    category = order.category.key if order.category else None
    for name, value in {"bot": order.bot.name, "city": city, "category": category}.items():
        if value is not None and run[name] not in (None, value):
            raise UsageError(f"run {id} is for {name} {run[name]}, not {value}", hint=f"omit {name}")
    if params | run["params"] != params:
        raise UsageError(f"run {id} has other parameters: {run['params']}", hint="omit the parameters")
    task_id = (
        await db.family(Runs).amend_run(id, city, category, params) if run["status"] == "pending" else None
    )
    if task_id is None:
        now = await db.family(Runs).get(id) or run
        raise UsageError(f"run {id} is already {now['status']}", hint=f"run `shiftboss runs retry {id}`")
    return task_id


class _OneTask(DatabaseSource):
    """A source with a single task."""

    worker: Worker

    def __init__(self, db: Database, task_id: UUID) -> None:
        super().__init__(db)
        self._database, self._task_id = db, task_id
        self._taken = False

    async def claim(self, limit: int) -> list[Claimed]:
        if self._taken:
            return []
        self._taken = True
        claimed = await self._database.tasks.assign([self._task_id], self.worker.id)
        if not claimed:
            self.worker.drain()
        return claimed

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        stale = await super().report(reports)
        self.worker.drain()
        return stale
