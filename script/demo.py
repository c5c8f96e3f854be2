"""Run a fleet through a few thousand tasks while a worker is killed, tasks fail and an AI provider goes down.

Every event is printed as it happens, and the counts are checked at the end. On a terminal the fleet then
keeps running until you press Ctrl+C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import UUID

import demo_tasks
from demo_provider import Provider
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from shiftboss.app.up import ALL, Up
from shiftboss.db import Database, Row
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.journal.demo import USERS, import_sample, tell
from shiftboss.lifecycle.logs import configure_logs
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.settings import Settings

LOOK_SECONDS = 0.25
#: The share of finished tasks at which a worker is killed.
KILL_AT = 0.2
TOPICS = ("rents", "rivers", "bread", "moods", "ships", "walks", "clocks", "maps", "salt", "lamps", "bees")

out = Console(highlight=False)

COUNTS = """
SELECT count(*) FILTER (WHERE status = 'Complete') AS complete,
    count(*) FILTER (WHERE status IN ('Failed', 'Cancelled')) AS failed,
    count(*) FILTER (WHERE status = 'Complete' AND attempts > 0) AS retried, count(*) AS known
FROM public.tasks WHERE id = ANY (%s)
"""
POISON = "SELECT error_message FROM public.tasks WHERE id = ANY (%s) AND status = 'Failed'"
SPENT = """
SELECT provider, spend_today, daily_budget
FROM shiftboss.ai_provider_status WHERE daily_budget IS NOT NULL ORDER BY provider
"""
STEPS = (
    "SELECT count(*) AS n FROM shiftboss.steps WHERE task_id = ANY (%s) AND kind = 'step' AND state = 'done'"
)


BEGAN = time.monotonic()


def say(what: str, words: str) -> None:
    at = f"{time.monotonic() - BEGAN:4.0f}s"
    out.print(f"[dim]{at}[/] [bold cyan]{what:>11}[/]  {words}", soft_wrap=True)


class Show:
    """Enqueues the work, injects the faults, and prints what the fleet's event log says about them."""

    def __init__(self, db: Database, provider: Provider) -> None:
        self._db, self._provider = db, provider
        self._ours: list[UUID] = []
        self._journal: list[UUID] = []
        self._failed_before = 0
        self._told: set[str] = set()
        self._last_event = 0

    async def run(self) -> None:
        newest = await self._db.events.latest(1)
        self._last_event = newest[0]["id"] if newest else 0
        await self._fill()
        started = time.monotonic()
        columns = (
            TextColumn("{task.description:>11}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=out, disable=not out.is_terminal, redirect_stderr=False) as bars:
            ours = bars.add_task("tasks", total=len(self._ours))
            journal = bars.add_task("journal", total=len(self._journal))
            async for _ in every(LOOK_SECONDS):
                if await self._look(bars, ours, journal):
                    break
        await self._count(time.monotonic() - started)

    async def _fill(self) -> None:
        tasks = demo_tasks
        now = time.strftime("%F %T")  # or answers would come from the cache of the last demo
        calls = [
            tasks.broken.call(),
            *(tasks.charge.call(n) for n in range(20)),
            *(tasks.report.call(f"{topic}, {now}") for topic in TOPICS),
            *(tasks.render.call(n) for n in range(60)),
            *(tasks.resize.call(n) for n in range(3000)),
        ]
        self._ours = [handle.id for handle in await tasks.app.enqueue_all(calls)]
        self._journal = (await import_sample(self._db)).tasks
        journal = f"{len(self._journal)} that analyse journals with AI"
        if not self._journal:
            journal = "none for the journals, which an earlier demo has analysed"
        say("enqueued", f"{len(self._ours)} tasks of five types, and {journal}")

    async def _look(self, bars: Progress, ours: TaskID, journal: TaskID) -> bool:
        """Print what is new and inject the faults that are due. True once every task has ended."""
        mine = await self._counts(self._ours)
        read = await self._counts(self._journal)
        done, analysed = mine["complete"] + mine["failed"], read["complete"] + read["failed"]
        bars.update(ours, completed=done)
        bars.update(journal, completed=analysed)
        await self._tell_events()
        await self._tell_failures(mine)
        self._tell_provider()
        if (done + analysed) / (len(self._ours) + len(self._journal)) >= KILL_AT and "kill" not in self._told:
            await self._kill()
        return done == len(self._ours) and analysed == len(self._journal)

    async def _kill(self) -> None:
        """Kill a healthy worker, or none if there is none at the moment."""
        for row in await self._db.health.slots():
            if row["pid"] and row["status"] == "healthy" and self._first("kill"):
                say("fault", f"[red]kill -9[/] {row['pid']}: {row['component']}")
                with suppress(ProcessLookupError):
                    os.kill(row["pid"], signal.SIGKILL)

    async def _tell_events(self) -> None:
        for row in await self._db.events.after(self._last_event):
            self._last_event = row["id"]
            if words := _words(row):
                say("fleet", words)

    async def _tell_failures(self, counts: Row) -> None:
        if counts["retried"] and self._first("retried"):
            say("fleet", "retry: the first payments that failed have succeeded at their second attempt")
        if counts["failed"] and self._first("poison"):
            row = await self._db.fetch_one(POISON, [self._ours])
            say("fleet", f"failed for good: {row and row['error_message']}")

    def _tell_provider(self) -> None:
        if self._provider.failed and self._first("down"):
            say("fault", "the AI provider now answers [red]503[/]; a fallback model is configured")
        if self._provider.answers["spare"] and self._first("spare"):
            say("fleet", "the failing model's circuit breaker is open; the fallback model answers")
        if self._provider.recovered and self._first("back"):
            say("fault over", "the AI provider answers again")

    async def _count(self, seconds: float) -> None:
        """Check that every task that was enqueued has ended, once."""
        all_tasks = [*self._ours, *self._journal]
        total = len(all_tasks)
        counts = await self._counts(all_tasks)
        steps = await self._db.fetch_one(STEPS, [self._ours])
        assert steps is not None
        answers = self._provider.answers
        out.print()
        say("done", f"{total} tasks in {seconds:.0f} s, {counts['retried']} of them after a retry")
        say("failed", f"{counts['failed']}: the task that kills its worker")
        say("AI", f"{answers.total()} answers for {steps['n']} steps, {answers['spare']} by the fallback")
        await self._budget()
        if counts["known"] != total or counts["complete"] + counts["failed"] != total:
            raise ShiftbossError("tasks are missing", hint="this is a bug in Shiftboss: please report it")
        if counts["failed"] != 1:
            raise ShiftbossError(
                f"{counts['failed']} tasks failed, not 1", hint="`shiftboss tasks list --status Failed`"
            )
        ended = f"{counts['complete']} complete + {counts['failed']} failed"
        say("checked", f"{total} enqueued = {ended}; none lost")

    async def _budget(self) -> None:
        for row in await self._db.fetch(SPENT):
            spent, limit = float(row["spend_today"]), float(row["daily_budget"])
            say("budget", f"{row['provider']}: ${spent:.2f} of ${limit:.2f} spent today")

    async def _counts(self, tasks: Sequence[UUID]) -> Row:
        row = await self._db.fetch_one(COUNTS, [list(tasks)])
        assert row is not None
        return row

    def _first(self, what: str) -> bool:
        if what in self._told:
            return False
        self._told.add(what)
        return True


async def every(seconds: float) -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(seconds)


def _words(row: Row) -> str | None:
    """The text for an event of the fleet's log; None for kinds that do not matter here."""
    details = row["details"] or {}
    if row["kind"] == "slot.crashed":
        return f"{row['component']} died: {details.get('error') or details.get('reason') or 'killed'}"
    if row["kind"] == "slot.healthy" and row["component"]:
        return f"{row['component']} is healthy"
    return None


def log_to(path: Path) -> None:
    """Send the log lines of this process and its workers to a file, to keep the screen readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    configure_logs("warning")


@asynccontextmanager
async def provider(data_dir: Path) -> AsyncIterator[Provider]:
    """Serve an AI provider on loopback, and write a configuration file that points this fleet to it."""
    served = Provider()
    config = data_dir / "demo.toml"
    config.write_text(served.settings)
    os.environ["SHIFTBOSS_CONFIG"] = str(config)
    serving = asyncio.create_task(served.serve())
    try:
        yield served
    finally:
        served.stop()
        await serving


async def main(port: int | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    data_dir = Path(os.environ["SHIFTBOSS_DATA_DIR"])
    log_to(data_dir / "demo.log")
    async with provider(data_dir) as served:
        settings = Settings.load()
        workers = max(2, min(os.cpu_count() or 1, 4))
        settings = settings.changed("supervisor", queues={ALL: workers}).changed("admin", port=port)
        where = "PostgreSQL at SHIFTBOSS_DATABASE_URL" if settings.database.url else "embedded PostgreSQL"
        say("starting", where)
        async with await Database.open(data_dir=settings.data_dir) as db:
            await _run(db, settings, served, stop, data_dir)


def _next_steps(data_dir: Path) -> None:
    say("try", f"export SHIFTBOSS_DATA_DIR='{data_dir}' PATH=\"{sys.prefix}/bin:$PATH\"")
    for command in ("shiftboss status", "shiftboss tasks list", "shiftboss journal search 'a happy day'"):
        say("", command)


async def _run(
    db: Database, settings: Settings, served: Provider, stop: asyncio.Event, data_dir: Path
) -> None:
    links: list[str] = []

    def announce(what: str, words: str) -> None:
        links.append(words) if what == "dashboard" else say(what, words)

    up = Up("demo_tasks:app", demo_tasks.app, db, settings, announce)
    async with up, await AI.open(AISettings.of(settings), db) as ai, demo_tasks.app:
        showing = asyncio.create_task(_show(db, ai, served))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({showing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not showing.done():
            showing.cancel()
        else:
            showing.result()
            out.print()
            _next_steps(data_dir)
            if sys.stdin.isatty() and sys.stdout.isatty():
                say("ready", "the fleet keeps running until you press Ctrl+C")
                for link in links:
                    say("dashboard", link)
                await stopped
        stopped.cancel()
        say("stopping", "running tasks may finish")


async def _show(db: Database, ai: AI, served: Provider) -> None:
    await Show(db, served).run()
    await tell(db, ai, out, USERS[:1])


parser = argparse.ArgumentParser(prog="script/demo", description=__doc__)
parser.add_argument("--port", type=int, help="of the dashboard (default: 8888, or a free one if taken)")
try:
    asyncio.run(main(parser.parse_args().port))
except ShiftbossError as error:
    say("error", error.message)
    if error.hint:
        say("hint", error.hint)
    sys.exit(1)
except Exception as error:
    say("error", f"{error!r}; details: {os.environ['SHIFTBOSS_DATA_DIR']}/demo.log")
    raise
