"""Tasks on a real Ray cluster of two nodes, of which one is killed under load."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from shiftboss.db import Database
from tests.extensions.ray.heavy import app, only_gpus
from tests.worker.test_runtime import finished

ray = pytest.importorskip("ray", reason="Ray is not installed: script/setup --ray")
pytestmark = [pytest.mark.serial, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[3]
OBJECTS = 80 * 1024 * 1024
PATIENT = {"RAY_raylet_start_wait_time_s": "60", "RAY_agent_register_timeout_ms": "60000"}
QUICK = {
    "SHIFTBOSS_WORKER_BEAT_SECONDS": "0.2",
    "SHIFTBOSS_WORKER_POLL_SECONDS": "0.2",
    "SHIFTBOSS_WORKER_GRACE_SECONDS": "5",
}


def ports() -> dict[str, int]:
    """Ports of a node's agents, which Ray otherwise waits for its agents to choose."""
    names = (
        "metrics_agent_port",
        "dashboard_agent_listen_port",
        "runtime_env_agent_port",
        "metrics_export_port",
    )
    with_sockets = [socket.socket() for _ in names]
    for one in with_sockets:
        one.bind(("127.0.0.1", 0))
    found = {name: one.getsockname()[1] for name, one in zip(names, with_sockets, strict=True)}
    for one in with_sockets:
        one.close()
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and a second node with two processors each, as Ray counts them."""
    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets need a short path
    os.environ |= PATIENT | {"RAY_TMPDIR": place}
    with preferred():
        made = two_nodes()
    try:
        yield made
    finally:
        made.shutdown()
        shutil.rmtree(place, ignore_errors=True)


def two_nodes() -> Any:
    """Ray's own start is not what is tested: it may fail, and is tried again."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": OBJECTS, "include_dashboard": False}
    for last in (False, False, True):
        made = Cluster()
        try:
            made.add_node(**node, **ports())
            made.second = made.add_node(**node, **ports())
            return made
        except Exception:
            made.shutdown()
            if last:
                raise
    return None


@contextmanager
def preferred() -> Iterator[None]:
    """Before other work on this machine, if we may: Ray gives up if its agents take 15 s to start."""
    group = Path("/proc/self/autogroup")
    with suppress(OSError):
        group.write_text("-15")
    try:
        yield
    finally:
        with suppress(OSError):
            group.write_text("0")


@asynccontextmanager
async def worker(
    url: str, tmp_path: Path, cluster: Any, target: str = "app", **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    command = ["worker", f"tests.extensions.ray.heavy:{target}", "--id", "on-ray", "--engine"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shiftboss", *command, f"ray={cluster.address}",
        env={**os.environ, **QUICK, "SHIFTBOSS_DATABASE_URL": url, "SHIFTBOSS_DATA_DIR": str(tmp_path), **env},
        cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def enqueue(db: Database, name: str, **params: Any) -> UUID:
    [made] = await db.tasks.enqueue([app.task_named(f"heavy.{name}").handler.new_task(params)])
    return made.id


async def count(db: Database, status: str) -> int:
    row = await db.fetch_one("SELECT count(*) AS n FROM tasks WHERE status = %s", [status])
    return int((row or {})["n"])


async def test_a_task_on_ray_has_everything_that_a_task_has(
    db: Database, database_url: str, tmp_path: Path, cluster: Any, eventually: Any
) -> None:
    async with worker(database_url, tmp_path, cluster):
        id = await enqueue(db, "thorough", path=str(tmp_path / "count"))
        row = await finished(db, id, 90)
        assert (row["status"], row["attempts"]) == ("Complete", 1)
        assert row["result_data"]["made"] == 1, "the step of the first attempt is not run again"
        await eventually(lambda: logged(db, id), 20)
        assert "ray" in psutil.Process(row["result_data"]["worker"]).name()
        row = await finished(db, await enqueue(db, "endless", folder=str(tmp_path)), 60)
        assert row["error_message"] == "the attempt timed out"
        pids = [int(path.suffix[1:]) for path in tmp_path.glob("pid.*")]  # none, if Ray was slow to start it
        await eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), 30)


async def logged(db: Database, id: UUID) -> bool:
    return [line["message"] for line in await db.logs.read(id)] == ["made 1", "made 1"]


async def test_a_cancelled_task_and_one_that_kills_its_process(
    db: Database, database_url: str, tmp_path: Path, cluster: Any, eventually: Any
) -> None:
    async with worker(database_url, tmp_path, cluster):
        id = await enqueue(db, "gated", folder=str(tmp_path), n=1)
        await eventually(lambda: list(tmp_path.glob("1.*")), 60)
        [pid] = [int(path.suffix[1:]) for path in tmp_path.glob("1.*")]
        await eventually(lambda: db.fetch("SELECT 1 FROM tasks WHERE progress = 40"), 20)
        await db.tasks.cancel([id])
        assert (await finished(db, id))["status"] == "Cancelled"
        await eventually(lambda: not psutil.pid_exists(pid), 30)
        row = await finished(db, await enqueue(db, "suicide"), 60)
        assert row["error_message"].startswith("the process of the task died")


async def test_only_as_many_are_claimed_as_the_cluster_has_room_for(
    db: Database, database_url: str, tmp_path: Path, cluster: Any, eventually: Any
) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shiftboss", "worker", "tests.extensions.ray.heavy:app", "--id", "plain",
        env={**os.environ, **QUICK, "SHIFTBOSS_DATABASE_URL": database_url, "SHIFTBOSS_DATA_DIR": str(tmp_path)},
        cwd=ROOT,
    )  # fmt: skip
    ids = [await enqueue(db, "gated", folder=str(tmp_path), n=n) for n in range(6)]
    assert (await finished(db, await enqueue(db, "light"), 60))["result_data"] == "here"
    [reason] = await db.tasks.why(ids[0])
    assert reason.reason == "no capable worker"
    assert "--engine ray" in (reason.advice or "")
    assert await count(db, "Queued") == 6, "a worker without Ray takes none of them"
    async with worker(database_url, tmp_path, cluster):
        await eventually(lambda: started(tmp_path) == 4, 90)
        held = "SELECT 1 FROM workers WHERE id = 'on-ray' AND resource_usage::text LIKE '%ray: the cluster is full with 4%'"
        await eventually(lambda: db.fetch(held), 20)
        assert await count(db, "In Progress") == 4
        (tmp_path / "gate").touch()
        for id in ids:
            assert (await finished(db, id, 60))["status"] == "Complete"
    other.terminate()
    await other.wait()


def started(folder: Path) -> int:
    return sum(1 for path in folder.iterdir() if path.name[0].isdigit())


async def test_waiting_work_is_told_to_the_autoscaler(
    db: Database, database_url: str, tmp_path: Path, cluster: Any, eventually: Any
) -> None:
    [handler] = only_gpus.handlers
    await db.tasks.enqueue([handler.new_task({}) for _ in range(3)])
    async with worker(database_url, tmp_path, cluster, "only_gpus"):
        await eventually(lambda: asked(cluster) == [{"CPU": 1.0, "GPU": 1.0}] * 3, 90)
    assert await count(db, "Queued") == 3


def asked(cluster: Any) -> list[dict[str, float]]:
    """What the autoscaler was asked for, where it looks for that."""
    from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
    from ray._raylet import GcsClient

    client = GcsClient(address=cluster.address)
    asked: list[dict[str, float]] = json.loads(
        client.internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL, None) or b"[]"
    )
    return asked


async def test_a_lost_node_costs_an_attempt_and_nothing_else(
    db: Database, database_url: str, tmp_path: Path, cluster: Any, eventually: Any
) -> None:
    async with worker(database_url, tmp_path, cluster):
        ids = [await enqueue(db, "gated", folder=str(tmp_path), n=n) for n in range(12)]
        await eventually(lambda: started(tmp_path) == 4, 90)
        places = [path.read_text() for path in tmp_path.iterdir() if path.name[0].isdigit()]
        lost = places.count(cluster.second.node_id)
        assert lost == 2
        cluster.remove_node(cluster.second, allow_graceful=False)
        await eventually(lambda: attempts_lost(db), 60)
        (tmp_path / "gate").touch()
        rows = [await finished(db, id, 90) for id in ids]
        assert {row["status"] for row in rows} == {"Complete"}
        assert sorted(row["attempts"] for row in rows) == [0] * 10 + [1] * 2
        for n in range(12):
            assert (tmp_path / f"done.{n}").read_text().count("\n") == 1, "each finishes once"
        assert {row["result_data"] for row in rows} == {cluster.head_node.node_id}


async def attempts_lost(db: Database) -> bool:
    rows = await db.fetch("SELECT outcome FROM shiftboss.attempts WHERE outcome = 'lost'")
    return len(rows) == 2
