"""A slow and lossy cable between two TAP devices, for kernels without netem.

    python tests/wire.py NAME NAME SECONDS LOSS

Makes both devices in the network namespace it is started in, says "up", and carries frames between them: each takes
SECONDS, and is lost with the probability LOSS.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import struct
import sys
from collections.abc import Callable
from contextlib import suppress

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME = 65536


def tap(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def carry(
    loop: asyncio.AbstractEventLoop, source: int, target: int, delay: float, loss: float
) -> Callable[[], None]:
    def deliver(frame: bytes) -> None:
        with suppress(OSError):  # the other end is down, or its queue is full: lost as well
            os.write(target, frame)

    def take() -> None:
        with suppress(OSError):
            frame = os.read(source, FRAME)
            if random.random() >= loss:
                loop.call_later(delay, deliver, frame)

    return take


async def main(one: str, other: str, delay: float, loss: float) -> None:
    loop, (a, b) = asyncio.get_running_loop(), (tap(one), tap(other))
    loop.add_reader(a, carry(loop, a, b, delay, loss))
    loop.add_reader(b, carry(loop, b, a, delay, loss))
    print("up", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    first, second, seconds, lost = sys.argv[1:]
    asyncio.run(main(first, second, float(seconds), float(lost)))
