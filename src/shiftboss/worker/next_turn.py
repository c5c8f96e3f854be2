"""Work for the next turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context


class NextTurn:
    """Calls `work` in the next turn of the event loop, once for all who ask in this turn.

    It runs with context variables of its own, not with those of the attempt that asks.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._asked = False
        self.context = copy_context()

    def ask(self) -> None:
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._run, context=self.context)

    def _run(self) -> None:
        self._asked = False
        self._work()
