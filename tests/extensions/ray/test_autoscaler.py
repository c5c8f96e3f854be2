"""Waiting tasks make Ray's own autoscaler add nodes, which then run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from shiftboss.db import Database
from tests.extensions.ray.test_ray import OBJECTS, PATIENT, count, enqueue, preferred, started, worker
from tests.servers import free_port
from tests.worker.test_runtime import finished

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: script/setup --ray")
pytestmark = [pytest.mark.serial, pytest.mark.timeout(300)]

#: Ray's provider for local tests: a node is a set of processes on this machine.
CONFIG: dict[str, Any] = {
    "cluster_name": "growing",
    "max_workers": 2,
    "idle_timeout_minutes": 0.05,
    "upscaling_speed": 1.0,
    "provider": {
        "type": "fake_multinode",
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "more": {
            "resources": {"CPU": 2, "object_store_memory": OBJECTS},
            "node_config": {},
            "min_workers": 0,
            "max_workers": 2,
        },
    },
    "auth": {},
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "rsync_filter": [],
    **{f"{part}_commands": [] for part in ("setup", "head_setup", "worker_setup", "initialization")},
    **{f"{part}_start_ray_commands": [] for part in ("head", "worker")},
}


@pytest.fixture
def growing() -> Iterator[SimpleNamespace]:
    """A head without processors, and an autoscaler that adds nodes with two."""
    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets need a short path
    port = free_port()
    address = f"{ray.util.get_node_ip_address()}:{port}"
    config = Path(place, "config.json")
    config.write_text(json.dumps(CONFIG | {"provider": CONFIG["provider"] | {"gcs_address": address}}))
    options = ["--num-cpus", 0, "--object-store-memory", OBJECTS, "--include-dashboard", "false"]
    command = ["start", "--head", "--block", "--port", port, "--autoscaling-config", config, *options]
    own = {"RAY_TMPDIR": place, "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    with preferred(), Path(place, "log").open("wb") as log:
        head = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *map(str, command)],
            env={**os.environ, **PATIENT, **own},
            stdout=log,
            stderr=log,
        )
    try:
        yield SimpleNamespace(address=address, env=own)
    finally:
        head.terminate()
        head.wait()
        for process in psutil.process_iter(["environ"]):  # nodes that the autoscaler had started
            if (process.info["environ"] or {}).get("RAY_TMPDIR") == place:
                with suppress(psutil.Error):
                    process.kill()
        shutil.rmtree(place, ignore_errors=True)


def nodes(address: str) -> int:
    """How many nodes are alive, besides the head."""
    from ray._raylet import GcsClient

    found = GcsClient(address=address).get_all_node_info().values()
    return sum(node.state == node.ALIVE for node in found) - 1


async def test_waiting_work_adds_nodes_that_run_it(
    db: Database, database_url: str, tmp_path: Path, growing: Any, eventually: Any
) -> None:
    ids = [await enqueue(db, "gated", folder=str(tmp_path), n=n) for n in range(3)]
    async with worker(database_url, tmp_path, growing, **growing.env):
        await eventually(lambda: started(tmp_path) == 3, 200)
        assert nodes(growing.address) == 2, "three tasks need two nodes with two processors each"
        assert await count(db, "In Progress") == 3
        (tmp_path / "gate").touch()
        for id in ids:
            assert (await finished(db, id, 60))["status"] == "Complete"
