"""`shiftboss top`: watch the fleet live and act on it with keys."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Every, cells, console, count, on_terminal, table
from shiftboss.cli.status import QUEUES, WORKERS, gather, summary
from shiftboss.model.errors import ShiftbossError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shiftboss.db import Database
    from shiftboss.operations import Operations

app = typer.Typer(add_completion=False)

HELP = "↑↓ select · p pause or resume · d drain worker · r retry failed tasks · q quit"
ARROWS = {"\x1b[A": "k", "\x1b[B": "j", "\x1bOA": "k", "\x1bOB": "j"}


@app.command()
def top(every: Every = 1.0) -> None:
    """Watch queues, workers and rates, and act on the selected line with a key.

    Keys: arrows (or j, k) select a line; p pauses or resumes a queue or worker; d drains a worker; r retries
    the failed tasks of a queue; q quits. On a pipe, use `shiftboss status --watch`.
    """
    if not (on_terminal() and sys.stdin.isatty()):
        raise UsageError("`shiftboss top` needs a terminal", hint="shiftboss status --watch")
    with suppress(KeyboardInterrupt):
        act(lambda db, operations: Top(db, operations, every).run())


@dataclass
class Top:
    """The state of the screen: the data, the selected line, and the actions of the keys."""

    db: Database
    operations: Operations
    every: float = 1.0
    data: dict[str, Any] = field(default_factory=dict)
    chosen: int = 0
    message: str = ""
    over: bool = False

    async def run(self) -> None:
        from rich.live import Live

        self.data = await gather(self.db)
        with keys() as pressed, Live(console=console(), screen=True, auto_refresh=False) as live:
            while not self.over:
                live.update(self.screen(), refresh=True)
                try:
                    await self.press(await asyncio.wait_for(pressed.get(), self.every))
                except TimeoutError:
                    self.data = await gather(self.db)

    @property
    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        """The lines that can be selected: queues, then workers."""
        return [(kind, row) for kind in ("queue", "worker") for row in self.data.get(f"{kind}s", [])]

    async def press(self, key: str) -> None:
        actions: dict[str, Callable[[], Awaitable[str]]] = {
            "p": self._pause,
            "d": self._drain,
            "r": self._retry,
        }
        if key in ("q", "\x03", "\x1b"):
            self.over = True
        elif key in ("j", "k"):
            last = max(len(self.lines) - 1, 0)
            self.chosen = min(max(self.chosen + (1 if key == "j" else -1), 0), last)
        elif key in actions and self.lines:
            try:
                self.message = await actions[key]()
            except ShiftbossError as error:
                self.message = error.message
            self.data = await gather(self.db)

    async def _pause(self) -> str:
        kind, row = self._line()
        verb = "resumed" if row["paused"] else "paused"
        if kind == "queue":
            name = row["name"]
            change = self.operations.resume_queue if row["paused"] else self.operations.pause_queue
            await change(me(), name)
        else:
            name = row["worker_id"]
            await self.operations.steer_worker(me(), name, paused=not row["paused"])
        return f"{kind} {name} {verb}"

    async def _drain(self) -> str:
        kind, row = self._line()
        if kind != "worker":
            return "select a worker to drain"
        await self.operations.steer_worker(me(), row["worker_id"], draining=True)
        return f"worker {row['worker_id']} is draining"

    async def _retry(self) -> str:
        from shiftboss.db.insights import TaskFilter

        kind, row = self._line()
        if kind != "queue":
            return "select a queue to retry"
        ids = await self.db.insights.tasks.ids(TaskFilter(status="Failed", queue=row["name"]))
        retried = await self.operations.retry_tasks(me(), ids)
        return f"{count(len(retried), 'failed task')} of {row['name']} will run again"

    def _line(self) -> tuple[str, dict[str, Any]]:
        return self.lines[min(self.chosen, len(self.lines) - 1)]

    def screen(self) -> RenderableType:
        from rich.console import Group

        parts: list[RenderableType] = [f"[bold]{summary(self.data)}[/]", ""]
        number = 0
        for kind, columns in (("queue", QUEUES), ("worker", WORKERS)):
            lines = []
            for row in self.data[f"{kind}s"]:
                mark = "▶" if number == self.chosen else " "
                lines.append([mark, *cells(row, columns)])
                number += 1
            parts += [table(["", *columns], lines), ""]
        parts += [f"[red]![/] {alert['message']}" for alert in self.data["alerts"]]
        message = [f"[reverse] {self.message} [/]"] if self.message else []
        return Group(*parts, *message, f"[dim]{HELP}[/]")


@contextmanager
def keys() -> Iterator[asyncio.Queue[str]]:
    """Yield a queue of pressed keys, read without Enter. Restores the terminal at the end."""
    import os
    import termios
    import tty

    pressed: asyncio.Queue[str] = asyncio.Queue()
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def read() -> None:
        word = os.read(stdin, 64).decode(errors="ignore")
        pressed.put_nowait(ARROWS.get(word, word[:1]))

    tty.setcbreak(stdin)
    loop.add_reader(stdin, read)
    try:
        yield pressed
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
