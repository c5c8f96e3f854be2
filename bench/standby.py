"""Clients that enqueue one task at a time on a primary whose synchronous standby is milliseconds away.

Run `python -m bench.standby [--clients 32] [--delay 0.002] [--seconds 3] [--rounds 3]` in the project's
environment; it prints one JSON object. Each ratio compares INSERTs into `tasks` with those into the same
table without triggers, in one round. For comparison, the same with a NOTIFY in each INSERT, which makes
commits wait for each other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
from tests import replicas

from shiftboss.db.migrate import migrate

sys.path.insert(0, str(Path(__file__).parent))

from enqueuers import BARE, TASKS, clients, workers
from peers.bare import TABLE

NOTIFYING = f"WITH made AS ({BARE} RETURNING 1) SELECT pg_notify('bench', '') FROM made"
LOCAL = "SET synchronous_commit = local"
WAITS = """SELECT 1 FROM pg_stat_activity
WHERE wait_event = 'SyncRep' AND state_change < clock_timestamp() - interval '50 ms'"""


async def proxy(port: int, target: int, delay: float) -> None:
    """Forward connections to the port `target`. Every byte takes `delay` seconds in each direction."""
    loop = asyncio.get_running_loop()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            loop.call_later(delay, sink.write, data)
        loop.call_later(delay, sink.close)

    async def accept(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(source, back), pump(there, sink))

    async with await asyncio.start_server(accept, "127.0.0.1", port) as server:
        await server.serve_forever()


@contextmanager
def distant(pair: replicas.Pair, delay: float) -> Iterator[None]:
    """Put the proxy between the standby and the primary, in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--proxy", str(port), str(pair.primary.port), "--delay", str(delay)]
    process = subprocess.Popen([sys.executable, "-m", "bench.standby", *words])
    try:
        pair.cut()
        pair.standby.set(
            "primary_conninfo", f"host=127.0.0.1 port={port} user=postgres application_name=standby"
        )
        pair.primary.wait("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
        pair.synchronous()
        yield
    finally:
        pair.primary.set("synchronous_standby_names", "")
        process.terminate()
        process.wait()


def measure(url: str, count: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Rates per second, and the ratio to the plain INSERTs of the same round."""
    found: dict[str, list[float]] = {"plain": [], "tasks": [], "with a NOTIFY in each": []}
    for _ in range(rounds):
        for name, statement in zip(found, (BARE, TASKS, NOTIFYING), strict=True):
            found[name].append(asyncio.run(clients(url, statement, count, seconds)))
    ratios = {
        name: [round(rate / plain, 2) for rate, plain in zip(rates, found["plain"], strict=True)]
        for name, rates in found.items()
    }
    return {
        name: {
            "per_second": [round(rate) for rate in found[name]],
            "ratio": statistics.median(ratios[name]),
            "rounds": ratios[name],
        }
        for name in found
    }


def stuck(pair: replicas.Pair, url: str) -> dict[str, Any]:
    """While the standby answers nothing: a client that waits for it, and one that commits asynchronously."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SELECT shiftboss.arm()")  # as a worker that falls asleep, so that enqueues notify
    pair.standby.freeze()
    held = subprocess.Popen([sys.executable, "-c", HELD, url])
    try:
        pair.primary.wait(WAITS)
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(LOCAL)
            began = time.perf_counter()
            for _ in range(100):
                conn.execute(TASKS)  # type: ignore[call-overload]
            seconds = time.perf_counter() - began
        return {"the synchronous client waits": held.poll() is None, "100 others (s)": round(seconds, 3)}
    finally:
        pair.standby.thaw()
        held.wait(30)


HELD = f"""
import psycopg, sys
psycopg.connect(sys.argv[1], autocommit=True).execute({TASKS!r})
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, default=32)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--delay", type=float, default=0.002, help="seconds to the standby, and back")
    options.add_argument("--proxy", type=int, nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.proxy:
        asyncio.run(proxy(*given.proxy, given.delay))
    replicas.SETTINGS |= {
        "fsync": "on",
        "full_page_writes": "on",
        "max_connections": "200",
        "shared_buffers": "128MB",
    }
    result: dict[str, Any] = {"load": os.getloadavg(), "delay": given.delay, "clients": given.clients}
    with replicas.pair() as pair:
        url = f"postgresql://{replicas.ROLE}@127.0.0.1:{pair.primary.port}/{replicas.DATABASE}"
        asyncio.run(migrate(url))
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(TABLE)
        with distant(pair, given.delay):
            for asleep in (0, 1):
                with workers(url, 1, "elsewhere") if asleep else nullcontext():
                    result[f"{asleep} workers asleep"] = measure(
                        url, given.clients, given.rounds, given.seconds
                    )
            result["standby stuck"] = stuck(pair, url)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
