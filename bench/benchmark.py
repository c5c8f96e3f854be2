"""Install the peers, start the servers, measure all systems in turn, and write the table and the charts."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import clients
import light
import measures
import psutil
import real
import report
import soak
from measures import Bench, Figures
from systems import BENCH, PEERS, SOURCE, SYSTEMS, VENVS, System

import servers

Step = tuple[str, System, Callable[[Bench, System], Figures]]
RESULTS = BENCH / "results"


def install(system: System) -> None:
    """Create the peer's environment, or create it again if its pinned versions have changed."""
    pins, home = PEERS / f"{system.name}.txt", VENVS / system.name
    mark = home / "pins.txt"
    if mark.exists() and mark.read_text() == pins.read_text():
        return
    print(f"installing {system.name}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps", "-r", str(pins)]
    subprocess.run(pip, check=True)
    mark.write_text(pins.read_text())


def compile_own() -> None:
    """Compile our modules, as an installer does for the peers. Quick if nothing has changed."""
    places = [str(SOURCE), sysconfig.get_paths()["purelib"]]
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", *places], check=False)


def machine(used: servers.Servers) -> dict[str, Any]:
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "two_at_once": two_at_once(),
        "memory_gb": round(psutil.virtual_memory().total / 1024**3),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "postgres": used.postgres_version,
        "redis": used.redis_version,
        "load_before": round(os.getloadavg()[0], 1),
    }


def two_at_once(seconds: float = 2.0) -> float:
    """The throughput of two busy loops relative to one: two virtual cores may share a physical one."""
    loop = f"""import time
end, n = time.perf_counter() + {seconds}, 0
while time.perf_counter() < end:
    n += sum(range(100)) > 0
print(n)"""

    def run(count: int) -> int:
        loops = [
            subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        return sum(int(one.communicate()[0]) for one in loops)

    alone = run(1)
    return round(statistics.median(run(2) / alone for _ in range(3)), 2)


def versions(systems: list[System]) -> dict[str, str]:
    found = {"shiftboss": version("shiftboss") if _installed() else "source", "psycopg": version("psycopg")}
    for system in systems:
        if not system.ours:
            lines = (PEERS / f"{system.name}.txt").read_text().splitlines()
            found |= dict(line.split("==") for line in lines if line.startswith(f"{system.name}=="))
    return found


def _installed() -> bool:
    try:
        return bool(version("shiftboss"))
    except Exception:
        return False


def plan(
    systems: list[System], options: argparse.Namespace, rates: Callable[[System], float]
) -> Iterator[Step]:
    """The measurements of one round, in order: each one goes through all systems in turn."""

    def half(bench: Bench, system: System) -> Figures:
        return measures.latency(bench, system, load=rates(system) / 2)

    def same(bench: Bench, system: System) -> Figures:
        if system.name not in ("shiftboss", "pgqueuer"):
            return {}
        slower = min(rates(one) for one in systems if one.name in ("shiftboss", "pgqueuer"))
        return measures.latency(bench, system, load=slower / 2, name="same")

    common = {
        "enqueue_bulk": measures.enqueue_bulk,
        "enqueue_single": measures.enqueue_single,
        "drain": measures.drain,
        "drain_two": measures.drain_two,
        "latency": measures.latency,
        "latency_busy": half,
        "latency_same": same,
    }
    for name, measure in common.items():
        yield from ((name, system, measure) for system in systems)
    for system in systems:
        if system.name == "shiftboss":
            yield "progress", system, measures.progress_cost
            yield "killed", system, measures.killed
            yield "clients", system, lambda b, s: clients.ratios(b, s, options.scale)
            yield "start", system, light.start
            yield "keys", system, real.keys
            yield "retries", system, real.retries
            yield "compute", system, real.compute
    for system in systems:
        if system.name in ("shiftboss", "pgqueuer", "procrastinate"):
            yield "clients", system, clients.own_enqueue
            yield "io", system, real.io
            yield "payloads", system, real.payloads


def flat(systems: list[System], options: argparse.Namespace) -> Iterator[Step]:
    """The long measurements, made once: a killed worker, backlogs, history, an open transaction, a soak."""
    for system in systems:
        if system.name == "shiftboss":
            edges = round(1_000_000 * options.scale)
            yield "edges", system, lambda b, s, n=edges: real.edges(b, s, n)
            yield "admin", system, lambda b, s: light.admin(b, s, round(10_000 * options.scale))
            yield "coordinator", system, lambda b, s: light.coordinator(options.scale)
            seconds = max(60.0, 600 * options.scale)
            yield "soak", system, lambda b, s, n=seconds: soak.measure(b, s, n)
            yield "soak", system, lambda b, s, n=seconds: soak.measure(b, s, n, held=True)
    for system in systems:
        if not system.ours:
            yield "killed", system, measures.killed_peer
    sizes = [10_000, round(1_000_000 * options.scale), *([10_000_000] if options.full else [])]
    for system in systems:
        if system.name not in ("limit", "shiftboss", "pgqueuer"):
            continue
        for size in sizes:
            if system.name != "pgqueuer" or size <= 1_000_000:
                yield "backlog", system, lambda b, s, n=size: measures.backlog(b, s, n)
        if system.name == "shiftboss":
            many = 10_000_000 if options.full else sizes[1]
            yield "history", system, lambda b, s, n=many: measures.backlog(b, s, s.drain, n)
        rounds = 30 if options.full else max(2, round(10 * options.scale))
        yield "held_open", system, lambda b, s, n=rounds: measures.held_open(b, s, n)


def measure(step: Step, bench: Bench, figures: dict[str, dict[str, list[float]]]) -> None:
    name, system, function = step
    began = time.perf_counter()
    try:
        result = function(bench, system)
    except Exception as error:  # one measure that fails must not end a run of an hour
        print(f"  {name:15} {system.label:22} failed: {error}", flush=True)
        return
    for key, value in result.items():
        figures[key][system.name].append(value)
    if not result:
        return
    shown = ", ".join(f"{key} {value:,.2f}" for key, value in result.items())
    print(f"  {name:15} {system.label:22} {shown}  ({time.perf_counter() - began:.0f} s)", flush=True)


def medians(figures: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, Any]]:
    return {
        key: {
            name: {"median": round(statistics.median(values), 4), "rounds": [round(v, 4) for v in values]}
            for name, values in by_system.items()
        }
        for key, by_system in figures.items()
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of everything that is quick (default 3)"
    )
    parser.add_argument(
        "--full", action="store_true", help="also 10 million tasks, and 30 rounds beside a transaction"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the usual sizes, to try things out"
    )
    parser.add_argument("--only", help="measure only these, comma-separated: drain,latency,...")
    parser.add_argument("--systems", help="only these, comma-separated: shiftboss,pgqueuer,...")
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "latest.json", help="another file leaves the pages alone"
    )
    parser.add_argument(
        "--report", type=Path, metavar="JSON", help="only write table and charts of this file"
    )
    return parser.parse_args()


def wanted(steps: Iterator[Step], options: argparse.Namespace) -> Iterator[Step]:
    names = options.only.split(",") if options.only else None
    return (step for step in steps if names is None or step[0] in names)


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield all results so far after each round and at the end."""
    names = options.systems.split(",") if options.systems else [system.name for system in SYSTEMS]
    systems = [system.scaled(options.scale) for system in SYSTEMS if system.name in names]
    for system in systems:
        if not system.ours:
            install(system)
    compile_own()
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def rate(system: System) -> float:
        return statistics.median(figures["drain_1"].get(system.name) or [200.0])

    def so_far(rounds: int) -> dict[str, Any]:
        return {
            "machine": about | {"load_after": round(os.getloadavg()[0], 1)},
            "versions": versions(systems),
            "rounds": rounds,
            "full": options.full,
            "figures": medians(figures),
        }

    with servers.running() as used:
        about = machine(used)
        bench = Bench(used)
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            for step in wanted(plan(systems, options, rate), options):
                measure(step, bench, figures)
            yield so_far(number + 1)
        print("flatness", flush=True)
        for step in wanted(flat(systems, options), options):
            measure(step, bench, figures)
    yield so_far(options.rounds)


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped as well
    if options.report is not None:
        report.write(json.loads(options.report.read_text()))
        return
    options.output.parent.mkdir(exist_ok=True)
    for result in run(options):
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    if options.output == RESULTS / "latest.json":
        report.write(result)
    print("\n".join(report.targets(result)))


if __name__ == "__main__":
    main()
