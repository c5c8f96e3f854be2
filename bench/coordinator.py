"""Measure one coordinator process: a scheduling pass, no-op tasks, heartbeats, and a killed worker.

Run `python bench/coordinator.py` in the project's environment; it prints one JSON object. The coordinator and
an embedded PostgreSQL are processes of their own; this process is the load client, with all streams in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import psutil

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.extensions.grpc.pool import Candidate
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.extensions.grpc.scheduler import FleetSnapshot, Lane, schedule
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.lifecycle import sleep
from shiftboss.model.task import Complete, NewTask, Report
from shiftboss.model.worker import Capabilities, Member


def scheduling_pass(workers: int = 1000, tasks: int = 10_000) -> dict[str, float]:
    """Milliseconds of a scheduling pass over twenty task types, four priorities and four tenants."""
    dice = random.Random(1)
    types = [f"t{n}" for n in range(20)]
    crew = [
        Candidate(
            f"w{n}",
            slots=10,
            free=10,
            task_types=frozenset(dice.sample(types, 5)),
            speed=dice.choice(["fast", "standard", "thorough"]),
            region=dice.choice(["eu", "us", None]),
            memory_gb=dice.choice([4, 8, 16]),
            gpu=dice.random() < 0.1,
        )
        for n in range(workers)
    ]
    waiting = [
        Lane(
            lane=n,
            queue="default",
            task_type=dice.choice(types),
            priority=dice.choice([1, 5, 10, 15]),
            tenant=dice.choice([None, "a", "b", "c"]),
            weight=1.0,
            requires=dice.choice([None, {"gpu": True}, {"memory_gb": 8}]),
            ids=[UUID(int=n * 50 + k) for k in range(50)],
            regions=[dice.choice(["eu", "us", None])] * 50,
        )
        for n in range(tasks // 50)
    ]
    took = []
    for _ in range(10):
        began = time.process_time()
        plan = schedule(FleetSnapshot(crew, waiting))
        took.append((time.process_time() - began) * 1000)
    return {"median_ms": round(statistics.median(took), 1), "assigned": len(plan.assignments)}


@asynccontextmanager
async def coordinator(url: str) -> Any:
    """Run a coordinator process. Yields its address and its psutil process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "shiftboss", "coordinator", "--no-token", "--port", str(port)]
    process = subprocess.Popen(  # noqa: ASYNC220 -- a moment's work
        [*command, "--log-level", "warning"], env=os.environ | {"SHIFTBOSS_DATABASE_URL": url}
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 60)
        yield f"127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


async def backends(db: Database) -> list[psutil.Process]:
    rows = await db.fetch("SELECT pid FROM pg_stat_activity")
    return [psutil.Process(row["pid"]) for row in rows]


async def no_ops(
    db: Database, address: str, process: psutil.Process, tasks: int, workers: int, slots: int
) -> dict[str, Any]:
    """Rate of no-op tasks from enqueued to complete, and the CPU time per task."""
    await db.tasks.copy(NewTask(task_type="noop") for _ in range(tasks))
    done = 0

    async def work(n: int) -> None:
        nonlocal done
        source = CoordinatorSource([address], CoordinatorSettings())
        capabilities = Capabilities(max_concurrent_tasks=slots)
        await source.join(Member(id=f"load-{n}", capabilities=capabilities))
        while done < tasks:
            claimed = await source.claim(slots)
            if claimed:
                await source.report([Report(task, Complete(None), 0.0) for task in claimed])
                done += len(claimed)
            else:
                await sleep(0.05, source.arrived)
        await source.leave()

    parts = {"coordinator": [process], "client": [psutil.Process()], "postgres": await backends(db)}
    before = {name: cpu_seconds(some) for name, some in parts.items()}
    began = time.perf_counter()
    await asyncio.gather(*(work(n) for n in range(workers)))
    seconds = time.perf_counter() - began
    used = {name: round((cpu_seconds(some) - before[name]) / tasks * 1e6) for name, some in parts.items()}
    row = await db.fetch_one("SELECT count(*) AS n FROM public.tasks WHERE status = 'Complete'")
    assert row is not None
    assert row["n"] == tasks
    rate = round(tasks / seconds)
    return {"tasks_per_second": rate, "workers": workers, "slots": slots, "cpu_us_per_task": used}


async def beats(address: str, process: psutil.Process, workers: int, seconds: float) -> dict[str, float]:
    """The share of a core that this many connected workers need, and the latency of a heartbeat."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=own) for _ in range(20)]
    latencies: list[float] = []
    ready = asyncio.Barrier(workers + 1)
    until = 0.0

    async def work(n: int) -> None:
        stub = fleet_pb2_grpc.FleetStub(channels[n % len(channels)])
        request = pb.RegisterWorkerRequest(
            worker_id=f"beat-{n}",
            capabilities=pb.Capabilities(max_concurrent_tasks=5, task_types=["none"]),
            protocol_version=1,
        )
        session = (await stub.RegisterWorker(request)).session
        stream = stub.AssignTask()
        await stream.write(pb.AssignTaskRequest(worker_id=f"beat-{n}", session=session, free_slots=5))
        beat = pb.HeartbeatRequest(worker_id=f"beat-{n}", session=session)
        await ready.wait()
        await asyncio.sleep(random.uniform(0, 5))
        while time.monotonic() < until:
            began = time.perf_counter()
            await stub.Heartbeat(beat)
            latencies.append(time.perf_counter() - began)
            await asyncio.sleep(5)
        stream.cancel()

    crew = [asyncio.create_task(work(n)) for n in range(workers)]
    until = time.monotonic() + 3600
    await ready.wait()
    until = time.monotonic() + seconds
    before = process.cpu_times()
    await asyncio.sleep(seconds)
    after = process.cpu_times()
    await asyncio.gather(*crew)
    for channel in channels:
        await channel.close()
    busy = after.user + after.system - before.user - before.system
    latencies.sort()
    return {
        "workers": workers,
        "beats": len(latencies),
        "cpu_percent_of_a_core": round(100 * busy / seconds, 1),
        "beat_p50_ms": round(latencies[len(latencies) // 2] * 1000, 1),
        "beat_p99_ms": round(latencies[int(len(latencies) * 0.99)] * 1000, 1),
    }


async def register_at_once(address: str, workers: int) -> dict[str, float]:
    """Seconds until all of many workers that register at the same time are registered."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=own) for _ in range(20)]

    async def join(n: int) -> None:
        stub = fleet_pb2_grpc.FleetStub(channels[n % len(channels)])
        await stub.RegisterWorker(
            pb.RegisterWorkerRequest(
                worker_id=f"crowd-{n}",
                capabilities=pb.Capabilities(max_concurrent_tasks=5, task_types=["none"]),
                protocol_version=1,
            )
        )

    began = time.perf_counter()
    await asyncio.gather(*(join(n) for n in range(workers)))
    seconds = time.perf_counter() - began
    for channel in channels:
        await channel.close()
    return {"workers": workers, "seconds": round(seconds, 2)}


HOLDING = """
import asyncio, time
from pathlib import Path
from shiftboss.worker.handlers import Handlers

handlers = Handlers()

@handlers.task("hold")
async def hold(log: str) -> None:
    with Path(log).open("a") as file:
        file.write(f"{time.monotonic()}\\n")
    await asyncio.sleep(3600)
"""


async def killed(db: Database, address: str, folder: Path, lease: float, beat: float) -> dict[str, float]:
    """Seconds from SIGKILL of a worker process to the start of its task in another one."""
    (folder / "holding.py").write_text(HOLDING)
    starts = folder / "starts"
    starts.touch()
    own = {"SHIFTBOSS_WORKER_LEASE_SECONDS": str(lease), "SHIFTBOSS_WORKER_BEAT_SECONDS": str(beat)}
    path = os.pathsep.join(filter(None, [str(folder), *map(os.path.abspath, sys.path)]))

    def worker(id: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "shiftboss", "worker", "holding:handlers", "--id", id]
        where = ["--coordinator", address, "--log-level", "error"]
        return subprocess.Popen([*command, *where], env=os.environ | own | {"PYTHONPATH": path})

    async def until(condition: Any) -> None:
        async with asyncio.timeout(lease + 60):
            while not await condition():  # noqa: ASYNC110 -- a file and a database give no signal
                await asyncio.sleep(0.02)

    async def started(count: int) -> bool:
        return len(starts.read_text().splitlines()) == count

    async def joined() -> bool:
        return bool(await db.fetch("SELECT FROM public.workers WHERE id = 'heir' AND status = 'active'"))

    await db.tasks.enqueue([NewTask(task_type="hold", params={"log": str(starts)})])
    crew = [worker("victim")]
    try:
        await until(lambda: started(1))
        crew.append(worker("heir"))
        await until(joined)
        crew[0].kill()
        died = time.monotonic()
        await until(lambda: started(2))
        again = float(starts.read_text().splitlines()[1])
    finally:
        for process in crew:
            process.kill()
            process.wait()
    return {"lease_seconds": lease, "beat_seconds": beat, "reassigned_after_seconds": round(again - died, 1)}


async def main(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"scheduling_pass_1000x10000": scheduling_pass()}
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder) / "pg", linger=0)
        url = await asyncio.to_thread(server.acquire)
        try:
            await migrate(url)
            async with await Database.open(url) as db, coordinator(url) as (address, process):
                found["no_op_tasks"] = await no_ops(
                    db, address, process, options.tasks, options.workers, options.slots
                )
                found["registered_at_once"] = await register_at_once(address, 200)
                found["killed_worker"] = await killed(
                    db, address, Path(folder), options.lease, options.lease / 6
                )
                found["beating_workers"] = await beats(address, process, options.beating, options.seconds)
        finally:
            server.release()
            await asyncio.to_thread(server.stop)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--beating", type=int, default=1000)
    parser.add_argument("--lease", type=float, default=30.0, help="of the worker that is killed")
    parser.add_argument("--seconds", type=float, default=20.0)
    print(json.dumps(asyncio.run(main(parser.parse_args())), indent=2))
