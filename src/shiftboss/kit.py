"""The test kit: run a task inline, drain a queue, move the clock, all on a temporary database.

With pytest and pytest-asyncio:

```python
@pytest.fixture
async def kit():
    async with Kit.open(app) as kit:
        yield kit

async def test_a_reminder_is_sent_tomorrow(kit):
    await remind.options(delay=86400).enqueue("Ann")
    assert await kit.drain() == []
    await kit.move(days=1)
    [report] = await kit.drain()
    assert isinstance(report.outcome, Complete)
```
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

import orjson

from shiftboss.app import App, Call
from shiftboss.app.inline import InlineSteps, ignore, inline_claim
from shiftboss.app.schedule import register_schedules
from shiftboss.app.task import Task
from shiftboss.app.testing import assert_enqueued, enqueued, next_due, restart_schedules
from shiftboss.db.connection import Connection, connect
from shiftboss.db.database import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.db.sync import SyncFamily
from shiftboss.leader.schedules import fire_due
from shiftboss.model.errors import TaskCancelled, TaskFailed, UsageError
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, Postpone, Report, Suspended, new_id
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.executor import Attempt, Executor
from shiftboss.worker.mark import Mark
from shiftboss.worker.source import DatabaseSource

__all__ = ["Cancelled", "Complete", "Fail", "Kit", "Postpone", "Report", "Suspended", "fresh_database", "run"]

R = TypeVar("R")
TEMPLATE = "shiftboss_template"
# The data does not need to survive a crash.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

# A stopped clock still advances by this much per connection, so that the order of events is known.
TICK = timedelta(milliseconds=10)
MOST_TICKS = 5000


async def run(call: Call[R], *, attempt: int = 1, db: Database | None = None) -> R:
    """Run one task inline as a worker would, and return its result.

    Arguments are validated, timeouts apply, and the result passes through JSON. Raises TaskFailed if the task
    does not complete.

    >>> from shiftboss import App
    >>> app = App("kit")
    >>> @app.task()
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> asyncio.run(run(double.call(21)))
    42
    """
    claimed = inline_claim(call.handler, call.params)._replace(attempt=attempt)
    handlers = App("inline").handlers
    handlers.add(call.handler)
    handlers.environment.parts += [call.handler.environment] if call.handler.environment else []
    mark = Mark()
    executor = Executor(handlers, ignore, db, steps=InlineSteps(), mark=mark)
    try:
        await executor.open()
        outcome = (await _attempt(executor, claimed, mark)).outcome
    finally:
        await executor.close()
    match outcome:
        case Complete(result):
            return call.decode(None if result is None else orjson.loads(result))
        case Cancelled():
            raise TaskCancelled(claimed.id, None)
        case Postpone(seconds, reason):
            raise TaskFailed(claimed.id, f"deferred by {seconds:g} s: {reason}")
        case Fail(error):
            raise TaskFailed(claimed.id, error)
        case Suspended(waits):
            names = ", ".join(str(wait["name"]) for wait in waits)
            raise TaskFailed(claimed.id, f"it waits for {names}: use Kit.drain() for tasks that wait")


class Kit:
    """An app with a temporary database. Create one with `Kit.open(app)`."""

    def __init__(self, app: App, db: ClockedDatabase) -> None:
        self.app = app
        self.db = db

    @classmethod
    @asynccontextmanager
    async def open(cls, app: App, url: str | None = None) -> AsyncIterator[Self]:
        """Open a kit on `url`, or on a new database of an embedded server that this process starts."""
        if url is None:
            async with fresh_database() as fresh, cls.open(app, fresh) as kit:
                yield kit
            return
        async with await ClockedDatabase.open(url) as db:
            await app.use(db)
            await db.tasks.declare_limits(app.handlers.limits())
            await register_schedules(db, app)
            try:
                yield cls(app, db)
            finally:
                await app.close()

    @classmethod
    @contextmanager
    def sync(cls, app: App, url: str | None = None) -> Iterator[Any]:
        """Open a kit with blocking methods, for tests without an event loop. `app.sync` uses its database."""
        try:
            with app.sync.within(cls.open(app, url)) as kit:
                yield SyncFamily(kit, app.sync)
        finally:
            app.sync.close()

    async def drain(self, queue: str | None = None, *, limit: int = 10_000) -> list[Report]:
        """Run tasks, including new ones, until none is due. Return the reports in order.

        Retries and sleeps work as in production: move the clock to reach the end of a backoff or a sleep.
        """
        source, reports = DatabaseSource(self.db, listening=False), list[Report]()
        mark = Mark()
        executor = Executor(self.app.handlers, ignore, self.db, mark=mark)
        executor.batches.eager = True  # the kit runs one task at a time
        await executor.open()
        types = sorted(handler.name for handler in self.app.handlers)
        versions = {handler.name: handler.versions for handler in self.app.handlers if handler.versions}
        await source.join(
            Member(
                id=f"kit:{new_id()}",
                queues=[queue] if queue else None,
                capabilities=Capabilities(task_types=types, versions=versions),
                lease_seconds=86400,
            )
        )
        try:
            while len(reports) < limit and (claimed := await self._due(source)):
                report = await _attempt(executor, claimed[0], mark)
                await source.report([report])
                reports.append(report)
        finally:
            await executor.close()
            await source.leave()
        return reports

    async def enqueued(self, task: Task[..., Any] | str | None = None) -> list[dict[str, Any]]:
        """Return all tasks that were enqueued, in order, whatever their status; or those of one type."""
        return await enqueued(self.db, task)

    async def assert_enqueued(
        self, what: Task[..., Any] | Call[Any] | str, *, times: int | None = None, **terms: Any
    ) -> None:
        """Assert that a task of this type, or a call with exactly these arguments, was enqueued.

        `times` is the exact number; the default is at least once. `terms` are columns of the task, such as
        `queue="mail"`.
        """
        await assert_enqueued(self.db, what, times, terms)

    async def assert_not_enqueued(self, what: Task[..., Any] | Call[Any] | str, **terms: Any) -> None:
        """Assert that no such task was enqueued."""
        await assert_enqueued(self.db, what, 0, terms)

    async def _due(self, source: DatabaseSource) -> list[Claimed]:
        """End waits that are due, as the leader does, and claim the next task."""
        await self.db.steps.wake_due()
        return await source.claim(1)

    async def freeze(self, at: datetime | None = None) -> datetime:
        """Stop the database's clock at `at`, or now, and return that time. Schedules continue from there."""
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise UsageError(
                f"freeze({at!r}): not a datetime with a time zone",
                hint="for example: datetime(2026, 1, 1, tzinfo=UTC)",
            )
        self.db.clock = shown = at or datetime.now(UTC)
        await restart_schedules(self.db, shown)
        self.db.clock = shown
        return shown

    async def move(self, **span: float) -> datetime:
        """Advance the clock, and stop it if it runs: `await kit.move(hours=2)`.

        The app's schedules fire for every tick in between, with the clock at that tick.
        """
        began = self.db.clock or datetime.now(UTC)
        target = began + timedelta(**span)
        for _ in range(MOST_TICKS):
            tick = await next_due(self.db)
            if tick is None or tick > target:
                self.db.clock = target
                return target
            self.db.clock = max(tick, self.db.clock or began)
            await fire_due(self.db)
        raise UsageError(
            f"schedules fire more than {MOST_TICKS} times", hint="move the clock in smaller steps"
        )

    async def thaw(self) -> None:
        """Let the clock run in real time again."""
        self.db.clock = None


class ClockedDatabase(Database):
    """A database whose connections use `clock` as the current time."""

    clock: datetime | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with super().connection() as conn:
            if self.clock is not None:
                self.clock += TICK
            shown = self.clock.isoformat() if self.clock else ""
            await conn.execute("SELECT set_config('shiftboss.now', %s, false)", [shown])
            yield conn


@asynccontextmanager
async def fresh_database() -> AsyncIterator[str]:
    """Create a migrated database, yield its URL, and drop it at the end."""
    url = await asyncio.to_thread(_server)
    name = f"kit_{new_id().hex}"
    await _admin(url, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
    try:
        yield _named(url, name)
    finally:
        await _admin(url, f"DROP DATABASE {name} WITH (FORCE)")


@cache
def _server() -> str:
    """Start the server of this process with a migrated template, which takes about two seconds."""
    directory = Path(tempfile.mkdtemp(prefix="shiftboss-kit-"))
    server = EmbeddedServer(directory / "server", settings=FAST, linger=0)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(server.stop)
    url = server.acquire()
    asyncio.run(_admin(url, f"CREATE DATABASE {TEMPLATE}"))
    asyncio.run(migrate(_named(url, TEMPLATE)))
    # Each copy of the template is a separate fleet.
    asyncio.run(_admin(url, "DELETE FROM shiftboss.installation", TEMPLATE))
    return url


async def _admin(url: str, statement: str, database: str = "postgres") -> None:
    async with connect(_named(url, database)) as conn:
        await conn.execute(statement)


def _named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


async def _attempt(executor: Executor, claimed: Claimed, mark: Mark) -> Report:
    """Run an attempt. A handler that ignores its cancellation is closed, so the test goes on."""
    began = time.monotonic()
    attempt = Attempt(claimed, began)
    running = asyncio.ensure_future(mark.steps(claimed.lease, executor.run(attempt)))
    attempt.handle = running  # type: ignore[assignment]  # only used to stop it
    try:
        await asyncio.wait({running})
    except asyncio.CancelledError:  # the test has a timeout
        executor.stop(attempt, "stop")
        await asyncio.wait({running})
        raise
    outcome = executor.verdict(attempt) if running.cancelled() else running.result()
    if running.cancelled() and isinstance(outcome, Fail):
        outcome = outcome._replace(error=f"{outcome.error}, and its handler ignored the cancellation")
    return Report(claimed, outcome, time.monotonic() - began)
