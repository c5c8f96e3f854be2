"""Kill a worker with SIGKILL at the step boundaries of long tasks, and count the paid calls made twice.

    python bench/kills.py [--kills 1000] [--steps 100] [--seed 1]

Each step of a task calls a provider: a TCP server in this process that counts. The worker is killed when a
call arrives (the step before it has been recorded), or at a random moment around the storing of its result.
A call is repeated wrongly if its step had been recorded when the worker died. Prints one JSON object; exits
with 1 if a recorded call was repeated or a task did not end well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shiftboss import Context
from shiftboss.db import Database
from shiftboss.db.stream import follow
from shiftboss.model.task import NewTask
from shiftboss.worker.handlers import Handlers

HERE = Path(__file__).resolve()
handlers = Handlers()


@handlers.task("agent", max_attempts=1000)
async def agent(ctx: Context, steps: int, port: int) -> int:
    """A task of many paid calls."""
    return sum([await ctx.step(f"call {n}", call, ctx, port, n) for n in range(steps)])


async def call(ctx: Context, port: int, n: int) -> int:
    """One paid call, whose answer is emitted to the stream."""
    answer = await ask(port, f"{ctx.id}/call {n}")
    await ctx.emit(n)
    return answer


async def ask(port: int, key: str) -> int:
    """One paid call."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(key.encode() + b"\n")
    answer = await reader.readline()
    writer.close()
    if not answer:
        raise ConnectionError("the provider hung up")
    return int(answer)


@dataclass
class Provider:
    """Counts the calls per key, and kills the worker at some of them."""

    calls: Counter[str] = field(default_factory=Counter)
    recorded: set[str] = field(default_factory=set)
    repeated: list[str] = field(default_factory=list)
    worker: asyncio.subprocess.Process | None = None
    chance: float = 0.0
    kills: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = (await reader.readline()).decode().strip()
        self.calls[key] += 1
        if key in self.recorded:
            self.repeated.append(key)
        if random.random() < self.chance:
            if random.random() < 0.5:
                self.kill()
            else:
                asyncio.get_running_loop().call_later(random.uniform(0, 0.005), self.kill)
        writer.write(b"1\n")
        writer.close()

    def kill(self) -> None:
        if self.worker is not None and self.worker.returncode is None:
            self.worker.kill()
            self.kills += 1


async def storm(url: str, kills: int, steps: int, tasks: int, data: Path) -> dict[str, Any]:
    """Run tasks while the worker is killed again and again. Returns the counts."""
    began, provider = time.monotonic(), Provider(chance=0.1)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with await Database.open(url) as db, server:
        params = {"steps": steps, "port": port}
        new = NewTask(task_type="agent", params=params, max_attempts=1000)
        ids = [made.id for made in await db.tasks.enqueue([new] * tasks)]
        readers = [asyncio.create_task(read(db, id)) for id in ids]
        while True:
            if provider.kills >= kills:
                provider.chance = 0.0
            provider.worker = await start(url, data)
            ended = asyncio.create_task(until_ended(db, ids))
            died = asyncio.create_task(provider.worker.wait())
            await asyncio.wait({ended, died}, return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            if ended.done():
                break
            ended.cancel()
            if provider.worker.returncode != -signal.SIGKILL:
                raise RuntimeError(f"the worker ended by itself, with status {provider.worker.returncode}")
            provider.recorded |= await recorded(db)
        provider.kill()
        await provider.worker.wait()
        rows = [await db.tasks.get(id) for id in ids]
        streams = [await reader for reader in readers]
        kept = [key for key in await recorded(db) if key.partition("/")[0] in set(map(str, ids))]
    return {
        "kills": provider.kills - 1,  # the last one ended the worker after the work
        "recorded_calls_repeated": len(provider.repeated),
        "streams_as_emitted": sum(stream == list(range(steps)) for stream in streams),
        "calls": sum(provider.calls.values()),
        "steps": len(kept),
        "complete": sum(row is not None and row["result_data"] == steps for row in rows),
        "tasks": tasks,
        "seconds": round(time.monotonic() - began, 1),
    }


async def read(db: Database, id: Any) -> list[Any]:
    """The text of a reader that reconnects all the time and discards withdrawn parts."""
    kept: dict[int, Any] = {}
    last, over = 0, False
    while not over:
        over = True
        async for part in follow(db.steps, id, after=last):
            last = part.number
            if part.discard is None:
                assert part.number not in kept, "a part came twice"
                kept[part.number] = part.part
            for number in part.discard or ():
                kept.pop(number, None)
            if random.random() < 0.05:  # the connection breaks
                over = False
                break
    return list(kept.values())


async def start(url: str, data: Path) -> asyncio.subprocess.Process:
    env = {
        **os.environ,
        "SHIFTBOSS_DATABASE_URL": url,
        "SHIFTBOSS_DATA_DIR": str(data),
        "SHIFTBOSS_WORKER_POLL_SECONDS": "0.1",
        "PYTHONPATH": str(HERE.parent),
    }
    command = [
        sys.executable,
        "-m",
        "shiftboss",
        "worker",
        "kills:handlers",
        "--id",
        "victim",
        "--concurrency",
        "4",
    ]
    return await asyncio.create_subprocess_exec(*command, env=env, stderr=asyncio.subprocess.DEVNULL)


async def until_ended(db: Database, ids: list[Any]) -> None:
    query = "SELECT count(*) AS n FROM tasks WHERE id = ANY (%s) AND status IN ('Queued', 'In Progress')"
    while (await db.fetch(query, [ids]))[0]["n"]:  # noqa: ASYNC110  # the work is in another process
        await asyncio.sleep(0.05)


async def recorded(db: Database) -> set[str]:
    rows = await db.fetch("SELECT task_id, name FROM shiftboss.steps WHERE state = 'done'")
    return {f"{row['task_id']}/{row['name']}" for row in rows}


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which the worker is killed")
    parser.add_argument("--url", help="a migrated database; an embedded one unless given")
    given = parser.parse_args()
    random.seed(given.seed)
    from shiftboss.kit import fresh_database

    with tempfile.TemporaryDirectory(prefix="shiftboss-kills-") as data:
        if given.url:
            counted = await campaign(given.url, given.kills, given.steps, Path(data))
        else:
            async with fresh_database() as url:
                counted = await campaign(url, given.kills, given.steps, Path(data))
    print(json.dumps({"seed": given.seed, **counted}, indent=1))
    return int(counted["recorded_calls_repeated"] > 0 or counted["streams_as_emitted"] < counted["tasks"])


async def campaign(url: str, kills: int, steps: int, data: Path) -> dict[str, Any]:
    """Repeat until there were enough kills. A task survives about 10 of them."""
    total: Counter[str] = Counter()
    while total["kills"] < kills:
        total.update(await storm(url, kills - total["kills"], steps, 4, data))
    return dict(total)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
