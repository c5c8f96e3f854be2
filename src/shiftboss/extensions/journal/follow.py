"""Waits for tasks and shows their progress: a bar on a terminal, a few lines on a pipe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shiftboss.db import Database
from shiftboss.model.task import Result, Status

EVERY = 0.25
PATIENCE = 10.0  # seconds without progress, after which the reason is shown
STEPS = 10  # lines on a pipe


Show = Callable[[int], None]


async def follow(
    db: Database, tasks: Sequence[UUID], console: Console, title: str = "analysing"
) -> list[Result]:
    """Wait until all tasks have ended, and return those that did not complete."""
    live, bad = list(dict.fromkeys(tasks)), []
    total, moved, told = len(live), time.monotonic(), False
    with _progress(console, title, total) as show:
        while live:
            ended = [result for result in await db.tasks.watch(live) if result.done]
            bad += [result for result in ended if result.status != Status.COMPLETE]
            over = {result.id for result in ended}
            live = [task for task in live if task not in over]
            show(total - len(live))
            if ended:
                moved = time.monotonic()
            elif not told and time.monotonic() - moved > PATIENCE:
                await _explain(db, live[0], console)
                told = True
            if live:
                await asyncio.sleep(EVERY)
    return bad


async def _explain(db: Database, task: UUID, console: Console) -> None:
    for reason in await db.tasks.why(task):
        console.print(f"waiting: {reason.detail} {reason.advice}", highlight=False)


@contextmanager
def _progress(console: Console, title: str, total: int) -> Iterator[Show]:
    if not console.is_terminal:
        yield _Lines(console, title, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(title, total=total)
        yield lambda done: progress.update(bar, completed=done)


class _Lines:
    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._said = -1

    def __call__(self, done: int) -> None:
        step = done * STEPS // max(1, self._total)
        if step > self._said:
            self._said = step
            self._console.out(f"{self._title}: {done} of {self._total} tasks")
