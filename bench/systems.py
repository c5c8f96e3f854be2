"""The compared systems: their server, their driver, and how many tasks each gets."""

from __future__ import annotations

import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

BENCH = Path(__file__).resolve().parent
PEERS = BENCH / "peers"
VENVS = PEERS / ".venvs"
SOURCE = BENCH.parent / "src"
SLOTS = 8


@dataclass(frozen=True, kw_only=True)
class System:
    """One system. `drain` is the number of tasks of a drain, which takes a few seconds."""

    name: str
    label: str
    store: str
    drain: int
    bulk: int
    single: int
    remaining: str | None = None
    """SQL that counts what is not finished; Redis systems have nothing like it."""

    @property
    def ours(self) -> bool:
        return self.name in ("shiftboss", "limit")

    def scaled(self, share: float) -> System:
        sizes = {name: max(100, round(getattr(self, name) * share)) for name in ("drain", "bulk", "single")}
        return replace(self, **sizes)

    @property
    def python(self) -> str:
        return sys.executable if self.ours else str(VENVS / self.name / "bin" / "python")

    def command(self, verb: str, url: str, **options: Any) -> list[str]:
        extra = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        return [self.python, str(PEERS / f"{self.name}_driver.py"), verb, "--url", url, *extra]

    def start(
        self, verb: str, url: str, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        path = str(SOURCE) if self.ours else ""
        return subprocess.Popen(
            self.command(verb, url, **options),
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_DEBUG") else subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": path} | (env or {}),
        )

    def call(self, verb: str, url: str, **options: Any) -> dict[str, float]:
        process = self.start(verb, url, **options)
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{self.name} {verb} failed; run again with BENCH_DEBUG=1 to see why")
        result: dict[str, float] = json.loads(output.strip().splitlines()[-1])
        return result


LIVE = "SELECT count(*) FROM public.tasks WHERE status IN ('Queued', 'In Progress')"

SYSTEMS = (
    System(
        name="limit", label="the limit (bare SQL)", store="postgres", drain=60_000, bulk=100_000, single=1000,
        remaining=LIVE,
    ),
    System(
        name="shiftboss", label="Shiftboss", store="postgres", drain=60_000, bulk=100_000, single=1000,
        remaining=LIVE,
    ),
    System(
        name="pgqueuer", label="PgQueuer", store="postgres", drain=30_000, bulk=100_000, single=1000,
        remaining="SELECT count(*) FROM pgqueuer",
    ),
    System(
        name="procrastinate", label="Procrastinate", store="postgres", drain=2000, bulk=20_000, single=1000,
        remaining="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    ),
    System(name="celery", label="Celery (Redis)", store="redis", drain=6000, bulk=5000, single=2000),
    System(name="dramatiq", label="Dramatiq (Redis)", store="redis", drain=6000, bulk=5000, single=2000),
    System(name="arq", label="arq (Redis)", store="redis", drain=4000, bulk=5000, single=2000),
)  # fmt: skip


SHIFTBOSS = next(system for system in SYSTEMS if system.name == "shiftboss")


class Counter:
    """Reads how many tasks all workers have run, as counted by the drivers."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "tally"
        self.path.write_bytes(b"\0" * 8 * SLOTS)
        with self.path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def each(self) -> tuple[int, ...]:
        return struct.unpack(f"{SLOTS}q", self._map[:])

    def total(self) -> int:
        return sum(self.each())

    def probes(self) -> list[float]:
        """Latencies in milliseconds so far, in order of arrival."""
        path = self.path.with_name("tally.probes")
        return [int(line) / 1e6 for line in path.read_text().split()] if path.exists() else []


@dataclass
class Fleet:
    """Running workers of one system."""

    processes: list[subprocess.Popen[str]]
    counter: Counter

    def cpu_seconds(self) -> float:
        total = 0.0
        for process in self.processes:
            family = psutil.Process(process.pid)
            for member in (family, *family.children(recursive=True)):
                times = member.cpu_times()
                total += times.user + times.system
        return total

    def megabytes(self) -> float:
        return psutil.Process(self.processes[0].pid).memory_info().rss / 1024**2


@contextmanager
def fleet(system: System, url: str, workers: int = 1) -> Iterator[Fleet]:
    """Run workers until the end of the block, then kill them."""
    with tempfile.TemporaryDirectory(prefix="shiftboss-tally-") as directory:
        counter = Counter(Path(directory))
        env = {"BENCH_TALLY": str(counter.path)}
        processes = [system.start("work", url, env | {"BENCH_SLOT": str(n)}) for n in range(workers)]
        try:
            yield Fleet(processes, counter)
        finally:
            for process in processes:
                process.kill()
                process.wait()
