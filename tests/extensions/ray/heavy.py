"""Tasks for a Ray cluster: small, since every process of Ray that runs one imports them."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

from shiftboss import App
from shiftboss.worker.blocking import SyncContext

app = App("heavy")
log = logging.getLogger("heavy")


@app.task(engine="ray", cpus=1)
def thorough(ctx: SyncContext, path: str) -> dict[str, int]:
    """Steps, progress and logs; the first attempt fails after its step."""
    made = ctx.step("made", lambda: _count(path))
    log.warning("made %d", made)
    if ctx.task.attempt == 1:
        raise ValueError("the first attempt always fails")
    return {"made": made, "attempt": ctx.task.attempt, "worker": os.getppid()}


def _count(path: str) -> int:
    with Path(path).open("a") as file:
        file.write("x")
    return len(Path(path).read_text())


@app.task(engine="ray", cpus=1, max_attempts=5)
def gated(ctx: SyncContext, folder: str, n: int) -> str:
    """Say where it runs, then wait for the gate."""
    ctx.progress(40, "at the gate")
    place = Path(folder, f"{n}.{os.getpid()}")
    place.write_text(_node())
    while not Path(folder, "gate").exists():
        time.sleep(0.02)
    with Path(folder, f"done.{n}").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return _node()


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


@app.task(engine="ray", cpus=1, timeout=3, max_attempts=1)
def endless(folder: str) -> None:
    Path(folder, f"pid.{os.getpid()}").touch()
    while True:
        time.sleep(0.02)


@app.task(engine="ray", cpus=1, max_attempts=1)
def suicide() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task()
def light() -> str:
    return "here"


only_gpus = App("gpus")


@only_gpus.task(engine="ray", cpus=1, gpus=1)
def render() -> None: ...
