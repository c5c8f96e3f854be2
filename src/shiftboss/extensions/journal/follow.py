"""Waits for tasks and shows their progress: a bar on a terminal, a few lines on a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shiftboss.cli.waiting import waiting
from shiftboss.db import Database
from shiftboss.model.task import Result, Status

EVERY = 0.25
STEPS = 10  # lines on a pipe


Show = Callable[[int], None]


async def follow(
    db: Database, tasks: Sequence[UUID], console: Console, timeout: float | None = None
) -> list[Result]:
    """Wait until all tasks have ended, and return those that did not complete."""
    live, bad = list(dict.fromkeys(tasks)), []
    total = len(live)
    async with waiting(db, lambda: live[0], timeout):
        with _progress(console, "analysing", total) as show:
            while live:
                found = await db.tasks.watch(live)  # without the tasks that were deleted meanwhile
                bad += [result for result in found if result.done and result.status != Status.COMPLETE]
                live = [result.id for result in found if not result.done]
                show(total - len(live))
                if live:
                    await asyncio.sleep(EVERY)
    return bad


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
