"""Signal handling: the first signal requests a stop, the second ends the process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block, SIGTERM and SIGINT call `stop`. A second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    requested = False

    # `signal.signal`, not `loop.add_signal_handler`: the second signal must end a blocked loop as well.
    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            os._exit(128 + number)
        requested = True
        loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
