"""Measure the footprint of Shiftboss: start, import, an idle worker, and an admin service under requests."""

from __future__ import annotations

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from typing import Any

import psutil
from measures import Bench, Figures, until
from systems import BENCH, SOURCE, System

REQUESTS = 10_000
API = "/api/v1/admin"
PATHS = (f"{API}/overview", f"{API}/tasks", f"{API}/workers", f"{API}/queues", "/", "/tasks", "/metrics")


def environment(url: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCE), "SHIFTBOSS_DATABASE_URL": url}


def start(bench: Bench, system: System) -> Figures:
    """CPU seconds of `from shiftboss import App`, and seconds of `shiftboss tasks list`."""
    env = environment(bench.place(system))
    imports = [children_cpu([sys.executable, "-c", "from shiftboss import App"], env)[0] for _ in range(5)]
    listed = [children_cpu([sys.executable, "-m", "shiftboss", "tasks", "list"], env) for _ in range(5)]
    return {
        "import_cpu": statistics.median(imports),
        "list_seconds": statistics.median(seconds for _, seconds in listed),
        "list_cpu": statistics.median(cpu for cpu, _ in listed),
    }


def children_cpu(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """CPU seconds and seconds of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.perf_counter() - began


def admin(bench: Bench, system: System, requests: int = REQUESTS) -> Figures:
    """Memory of the admin service after its first requests, and after 10,000 more."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "shiftboss", "admin", "--port", str(port)]
    process = subprocess.Popen(command, env=environment(bench.place(system)))
    try:
        until(lambda: ask(port, "/healthz") is not None, "the admin service does not answer", 0.1)
        family = psutil.Process(process.pid)
        ask_for_all(port, 100)
        first = family.memory_info().rss
        ask_for_all(port, requests)
        last = family.memory_info().rss
    finally:
        process.terminate()
        process.wait(30)
    return {"admin_mb": last / 1024**2, "admin_growth_mb": (last - first) / 1024**2}


def ask_for_all(port: int, requests: int) -> None:
    """Request each path in turn. An error response needs less memory, so it ends the run."""
    for n in range(requests):
        path = PATHS[n % len(PATHS)]
        if ask(port, path) is None:
            raise RuntimeError(f"the admin service does not answer {path}")


def ask(port: int, path: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.read()
    except OSError:
        return None


def coordinator(scale: float) -> Figures:
    """The results of bench/coordinator.py: no-op tasks over gRPC, heartbeats, registrations."""
    sizes = [
        "--tasks",
        str(round(30_000 * scale)),
        "--lease",
        "6",
        "--seconds",
        str(max(5, round(20 * scale))),
    ]
    command = [sys.executable, str(BENCH / "coordinator.py"), *sizes]
    env = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {
        "coordinator_rate": found["no_op_tasks"]["tasks_per_second"],
        "coordinator_beats": found["beating_workers"]["cpu_percent_of_a_core"],
        "coordinator_joined": found["registered_at_once"]["seconds"],
    }
