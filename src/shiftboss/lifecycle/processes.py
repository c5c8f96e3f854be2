"""Identities of processes: a pid can be reused, a pid with its start time cannot."""

from __future__ import annotations

import os
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

import psutil

ZOMBIE_STATES = "ZX"


def identity(pid: int) -> str | None:
    """Return a unique name of this process, or None if it is not alive. A zombie is not alive."""
    if not Path("/proc/self/stat").exists():
        return _identity_elsewhere(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses can contain anything, so count from its end: state is 1st, start time 20th.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ZOMBIE_STATES:
        return None
    # Ticks since boot: unlike a wall-clock start time, they do not change when the clock is set.
    return f"{pid}:{fields[19]}:{_boot()}"


def age() -> float:
    """Return the age of this process in seconds, independent of changes to the wall clock."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, AttributeError):
        return max(time.time() - float(psutil.Process().create_time()), 0.0)


def is_alive(name: str) -> bool:
    """Whether the process with that identity is alive."""
    return identity(pid_of(name)) == name


def pid_of(name: str) -> int:
    return int(name.partition(":")[0])


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def own_name() -> dict[str, Any]:
    """Return what identifies this process, for `known_dead`."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "process": identity(pid), "machine": _machine()}


def known_dead(name: dict[str, Any]) -> bool:
    """Whether the process with that `own_name` has certainly ended: it ran on this machine and is gone."""
    machine, process = _machine(), str(name.get("process") or "")
    return machine is not None and name.get("machine") == machine and process != "" and not is_alive(process)


@cache
def _machine() -> str | None:
    """Return the boot id and the pid namespace, within which pids can be compared. None: unknown here."""
    try:
        return f"{_boot()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _identity_elsewhere(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{pid}:{process.create_time()}"
    except psutil.Error:
        return None
