"""Telling processes apart: a pid is used again, a pid with its start time is not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import psutil

ZOMBIE_STATES = "ZX"


def identity(pid: int) -> str | None:
    """A name for this very process, the same until it ends. None: it is not alive; a zombie is not."""
    if not Path("/proc/self/stat").exists():
        return _identity_elsewhere(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything, so count from its end: state is first, start time 20th.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ZOMBIE_STATES:
        return None
    # Ticks since boot: unlike a wall-clock start time they do not move when the clock is set.
    return f"{pid}:{fields[19]}:{_boot()}"


def is_alive(name: str) -> bool:
    """Whether the process of that identity lives."""
    return identity(pid_of(name)) == name


def pid_of(name: str) -> int:
    return int(name.partition(":")[0])


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _identity_elsewhere(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{pid}:{process.create_time()}"
    except psutil.Error:
        return None
