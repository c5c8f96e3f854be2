"""Stores what handlers log: limited per attempt, sent in batches, without delaying tasks.

A `logging.Handler` is attached to the root logger; levels are not changed. A record belongs to the task in
whose context it was created. A thread that a handler starts is covered only if it copies the context.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from shiftboss.lifecycle import Backoff, Service, sleep
from shiftboss.log import LogEvent, get_logger
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.log import LogLine
from shiftboss.model.step import in_step
from shiftboss.model.task import Claimed, storable
from shiftboss.worker.source import Source
from shiftboss.worker.watchdog import running

if TYPE_CHECKING:
    from shiftboss.worker.executor import Attempt

log = get_logger(__name__)

COLLECT_SECONDS = 0.25
#: An attempt may log a burst of this many lines, and this many per second in the long run.
BURST, PER_SECOND = 1000.0, 10.0
#: Of the lines beyond that, the latest are kept: LAST at the end of the attempt, SOME at a time before.
LAST, SOME = 200, 50
MOST_TEXT = 4000
#: The maximum number of lines that a worker keeps while the database is away.
MOST_UNSENT = 20_000
#: Fields that `ctx.log` adds. Every stored line has them already.
BOUND = ("task_id", "task_type", "attempt")
_formatter = logging.Formatter()


class Buffer:
    """The lines of one attempt that are not sent yet, and how many more it may log."""

    __slots__ = ("_dropped", "_lines", "_since", "_tokens", "taken", "task")

    def __init__(self, task: Claimed) -> None:
        self.task = task
        self.taken = 0
        self._lines: deque[LogLine] = deque()
        self._dropped = 0
        self._tokens, self._since = BURST, time.monotonic()

    def put(self, line: LogLine) -> None:
        self._lines.append(line)
        self._shorten(int(BURST))

    def take(self, last: bool = False) -> list[LogLine]:
        """Return the lines that may be stored now; with `last`, the final ones."""
        now = time.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._since) * PER_SECOND)
        self._since = now
        room = max(int(self._tokens), LAST) if last else int(self._tokens)
        if not last and room < min(len(self._lines), SOME):
            return []
        self._shorten(room)
        lines = [*self._marker(), *self._lines]
        self._lines.clear()
        self._tokens = max(self._tokens - len(lines), 0.0)
        self.taken += len(lines)
        return lines

    def _shorten(self, most: int) -> None:
        while len(self._lines) > most:
            self._lines.popleft()
            self._dropped += 1

    def _marker(self) -> list[LogLine]:
        dropped, self._dropped = self._dropped, 0
        return [marker(self.task.id, self.task.lease, self.task.attempt, dropped)] if dropped else []


def marker(id: UUID, lease: int, attempt: int, dropped: int) -> LogLine:
    """Return a line that stands for dropped lines."""
    text = f"{dropped} lines were dropped: the task logs faster than they can be stored"
    return LogLine(id, lease, attempt, None, time.time(), logging.WARNING, "shiftboss", text, dropped)


class Capture(logging.Handler, ABC):
    """Collects the log records of tasks. It is attached to the root logger while tasks run."""

    @abstractmethod
    def buffer(self) -> Buffer | None:
        """Return the buffer of the task that runs in this context."""

    def added(self, buffer: Buffer) -> None:
        """Called after each line, under the handler's lock."""

    def emit(self, record: logging.LogRecord) -> None:
        if _last_resort(record, self):
            assert logging.lastResort is not None
            logging.lastResort.handle(record)
        if _internal(record.name):
            return
        buffer = self.buffer()
        if buffer is None:
            return
        try:
            buffer.put(_line(buffer.task, record))
            self.added(buffer)
        except Exception:
            self.handleError(record)


def _internal(name: str) -> bool:
    """Whether a logger is internal. Internal loops can run in a task's context, but are not part of it."""
    return name.startswith("shiftboss.") and not name.startswith(("shiftboss.task", "shiftboss.extensions."))


def _last_resort(record: logging.LogRecord, ours: logging.Handler) -> bool:
    """Whether logging is not configured, so that Python would print the record to stderr without us."""
    if logging.lastResort is None or record.levelno < logging.lastResort.level:
        return False
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(one is not ours and not isinstance(one, Capture) for one in logger.handlers):
            return False
        logger = logger.parent
    return True


def _line(task: Claimed, record: logging.LogRecord) -> LogLine:
    text, event = "", record.msg
    if isinstance(event, LogEvent):
        fields = {name: value for name, value in event.fields.items() if name not in BOUND}
        text = str(LogEvent(event.text, fields))
    else:
        text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        text = f"{text}\n{_formatter.formatException(record.exc_info)}"
    if len(text) > MOST_TEXT:
        text = f"{text[: MOST_TEXT // 2]}\n… {len(text) - MOST_TEXT} characters …\n{text[-MOST_TEXT // 2 :]}"
    level = min(max(record.levelno, 0), 1000)
    name = storable(record.name)[:200]
    scope = in_step.get()
    step = None if scope is None else scope.name
    return LogLine(task.id, task.lease, task.attempt, step, record.created, level, name, storable(text))


class WorkerCapture(Capture):
    """The records of all attempts of a worker."""

    def __init__(self, attempts: Mapping[int, Attempt]) -> None:
        """`attempts` has the running attempts by lease."""
        super().__init__()
        self._attempts = attempts
        self._buffers: dict[int, Buffer] = {}
        self._ended: list[Buffer] = []
        self._passed: list[LogLine] = []

    def buffer(self) -> Buffer | None:
        lease = running.get(None)
        if lease is None:
            return None
        buffer = self._buffers.get(lease)
        if buffer is None and (attempt := self._attempts.get(lease)) is not None:
            buffer = self._buffers[lease] = Buffer(attempt.task)
        return buffer

    def end(self, lease: int) -> None:
        """Mark an attempt as ended."""
        buffer = self._buffers.pop(lease, None)
        if buffer is not None:
            self._ended.append(buffer)

    def pass_on(self, lines: Iterable[LogLine]) -> None:
        """Add lines of a child process, which has limited them already."""
        self._passed.extend(lines)

    def take(self) -> tuple[list[LogLine], list[UUID]]:
        """Return the lines to store now, and the tasks whose stored lines may exceed their limit."""
        self.acquire()
        try:
            return self._take()
        finally:
            self.release()

    def _take(self) -> tuple[list[LogLine], list[UUID]]:
        lines, self._passed = self._passed, []
        ended, self._ended = self._ended, []
        due = [buffer.task.id for buffer in ended] + list({line.task_id for line in lines})
        for buffer in ended:
            lines += buffer.take(last=True)
        for buffer in self._buffers.values():
            lines += buffer.take()
            if buffer.taken > BURST:
                buffer.taken = 0
                due.append(buffer.task.id)
        return lines, due


class LogWriter(Service):
    """Stores captured lines a few times a second. Errors here do not affect tasks."""

    def __init__(self, source: Source, attempts: Mapping[int, Attempt], enabled: bool = True) -> None:
        super().__init__()
        self._source, self._enabled = source, enabled
        self._backoff = Backoff(maximum=5.0)
        self._not_before = 0.0
        self._unsent: list[LogLine] = []
        self._due: list[UUID] = []
        self.capture = WorkerCapture(attempts)

    async def run(self) -> None:
        self.ready()
        if not self._enabled:
            await self.stopping.wait()
            return
        root = logging.getLogger()
        root.addHandler(self.capture)
        try:
            while not await sleep(COLLECT_SECONDS, self.stopping):
                await self._collect()
            self._not_before = 0.0
            await self._collect()
        finally:
            root.removeHandler(self.capture)

    async def _collect(self) -> None:
        lines, due = self.capture.take()
        self._due += due
        if lines:
            self._unsent = bounded(self._unsent + lines)
        if (self._unsent or self._due) and time.monotonic() >= self._not_before:
            await self._send()

    async def _send(self) -> None:
        try:
            async with asyncio.timeout(5.0):
                await self._source.logs(self._unsent, self._due)
        except (ShiftbossError, TimeoutError) as error:
            self._not_before = time.monotonic() + self._backoff.next()
            log.warning("cannot store task logs, retrying", lines=len(self._unsent), reason=str(error))
            return
        except Exception as error:
            log.error("task logs lost", lines=len(self._unsent), reason=str(error))
        self._backoff.reset()
        self._unsent, self._due = [], []


def bounded(lines: list[LogLine]) -> list[LogLine]:
    """Return the latest MOST_UNSENT lines, and one line per attempt with the number of dropped lines."""
    if len(lines) <= MOST_UNSENT:
        return lines
    gone, kept = lines[:-MOST_UNSENT], lines[-MOST_UNSENT:]
    counts: Counter[tuple[UUID, int, int]] = Counter()
    for line in gone:
        counts[line.task_id, line.lease, line.attempt] += max(line.dropped, 1)
    return [*(marker(*attempt, count) for attempt, count in counts.items()), *kept]
