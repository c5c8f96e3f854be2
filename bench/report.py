"""Generate the Markdown table with targets, and the charts, from a result file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from systems import BENCH, SYSTEMS

PAGES = BENCH.parent / "docs" / "benchmarks"
LABELS = {system.name: system.label for system in SYSTEMS}
COLOURS = {"shiftboss": "#d9480f", "limit": "#868e96"}

ROWS = {
    "enqueue_bulk": "enqueue, in bulk (tasks/s)",
    "enqueue_single": "enqueue, one by one (tasks/s)",
    "drain_1": "drain, one worker process (tasks/s)",
    "drain_2": "drain, two worker processes (tasks/s)",
    "latency_idle_p50": "pick-up on an idle queue, p50 (ms)",
    "latency_idle_p99": "pick-up on an idle queue, p99 (ms)",
    "latency_busy_p50": "pick-up at half load, p50 (ms)",
    "latency_busy_p99": "pick-up at half load, p99 (ms)",
    "cpu_worker_us": "CPU of the worker per task (µs)",
    "cpu_server_us": "CPU of PostgreSQL per task (µs)",
    "memory_mb": "memory of an idle worker process (MB)",
    "drain_beside_progress": "drain beside 2,000 progress reports/s (tasks/s)",
    "waiting_10000": "drain with 10 thousand waiting (tasks/s)",
    "waiting_1000000": "drain with 1 million waiting (tasks/s)",
    "waiting_10000000": "drain with 10 million waiting (tasks/s)",
    "finished_1000000": "drain beside 1 million finished (tasks/s)",
    "finished_10000000": "drain beside 10 million finished (tasks/s)",
    "held_first": "beside an open transaction, first rounds (tasks/s)",
    "held_last": "beside an open transaction, last rounds (tasks/s)",
    "rerun_seconds": "from SIGKILL to the next run (s)",
    "latency_same_p50": "pick-up beside half of PgQueuer's rate, p50 (ms)",
    "latency_same_p99": "pick-up beside half of PgQueuer's rate, p99 (ms)",
    "own_32": "enqueue by 32 clients, the system's own call (tasks/s)",
    "real_io": "tasks of 5 ms I/O (tasks/s)",
    "real_1k": "tasks of 1 kB (tasks/s)",
    "real_64k": "tasks of 64 kB (tasks/s)",
    "real_cpu": "tasks of 5 ms CPU in processes (tasks/s)",
    "real_retry": "tasks that fail once (tasks/s)",
    "real_keys": "one at a time of each of 10,000 keys (tasks/s)",
    "real_edges": "tasks with ten parents each (tasks/s)",
    "import_cpu": "CPU of `from shiftboss import App` (s)",
    "list_seconds": "`shiftboss tasks list` (s)",
    "admin_mb": "memory of the admin service after 10,000 requests (MB)",
    "coordinator_rate": "no-op tasks over gRPC (tasks/s)",
    "coordinator_beats": "CPU of a coordinator for 1,000 beating workers (% of a core)",
    "coordinator_joined": "200 workers that register at once (s)",
}


LONGEST = {"rerun_seconds": 60.0}
"""Nobody waited longer than this."""

CHARTS = {
    "drain": ({"drain_1": "one process", "drain_2": "two processes"}, "tasks/s"),
    "enqueue": ({"enqueue_bulk": "in bulk", "enqueue_single": "one by one"}, "tasks/s"),
    "latency": ({"latency_idle_p50": "p50", "latency_idle_p99": "p99"}, "ms on an idle queue"),
}


class Target(NamedTuple):
    """A ratio of two figures of one run, or one figure where `to` is None, and what it should be."""

    what: str
    of: tuple[str, str]
    to: tuple[str, str] | None
    bound: float
    at_most: bool = False

    def hit(self, ratio: float) -> bool:
        return ratio <= self.bound if self.at_most else ratio >= self.bound


US = "shiftboss"
TARGETS = (
    Target("drain : PgQueuer", ("drain_1", US), ("drain_1", "pgqueuer"), 2.5),
    Target("drain : Procrastinate", ("drain_1", US), ("drain_1", "procrastinate"), 50),
    Target("drain : Celery", ("drain_1", US), ("drain_1", "celery"), 10),
    Target("drain : the limit", ("drain_1", US), ("drain_1", "limit"), 0.6),
    Target("two processes : one", ("drain_2", US), ("drain_1", US), 1.2),
    Target("two processes : PgQueuer's two", ("drain_2", US), ("drain_2", "pgqueuer"), 2),
    Target("bulk enqueue : bare COPY", ("enqueue_bulk", US), ("enqueue_bulk", "limit"), 0.5),
    Target("bulk enqueue : PgQueuer", ("enqueue_bulk", US), ("enqueue_bulk", "pgqueuer"), 1),
    Target("single enqueue : bare INSERT", ("enqueue_single", US), ("enqueue_single", "limit"), 1),
    Target("pick-up p50 : bare", ("latency_idle_p50", US), ("latency_idle_p50", "limit"), 1.25, True),
    Target("pick-up p99 : bare", ("latency_idle_p99", US), ("latency_idle_p99", "limit"), 3, True),
    Target("pick-up p99 : PgQueuer", ("latency_idle_p99", US), ("latency_idle_p99", "pgqueuer"), 1, True),
    Target("1 million waiting : 10 thousand", ("waiting_1000000", US), ("waiting_10000", US), 0.8),
    Target("10 million waiting : 10 thousand", ("waiting_10000000", US), ("waiting_10000", US), 0.8),
    Target("1 million finished : none", ("finished_1000000", US), ("waiting_10000", US), 0.8),
    Target("10 million finished : none", ("finished_10000000", US), ("waiting_10000", US), 0.8),
    Target("open transaction, last : first", ("held_last", US), ("held_first", US), 0.7),
    Target("drain beside progress : alone", ("drain_beside_progress", US), ("drain_1", US), 0.9),
    Target("1 client : no triggers", ("clients_1", US), None, 0.9),
    Target("8 clients : no triggers", ("clients_8", US), None, 0.9),
    Target("32 clients : no triggers", ("clients_32", US), None, 0.9),
    Target("64 clients : no triggers", ("clients_64", US), None, 0.9),
    Target("32 clients, a worker asleep : no triggers", ("clients_32_asleep", US), None, 0.9),
    Target("32 clients beside one worker : no triggers", ("clients_32_draining", US), None, 0.9),
    Target("32 clients beside three workers : no triggers", ("clients_32_draining_3", US), None, 0.9),
    Target("App.enqueue by 32 clients : PgQueuer", ("own_32", US), ("own_32", "pgqueuer"), 3),
    Target("App.enqueue by 32 clients : Procrastinate", ("own_32", US), ("own_32", "procrastinate"), 3),
    Target("same load, p50 : PgQueuer", ("latency_same_p50", US), ("latency_same_p50", "pgqueuer"), 1, True),
    Target("same load, p99 : PgQueuer", ("latency_same_p99", US), ("latency_same_p99", "pgqueuer"), 1, True),
    Target("limits per key : plain", ("real_keys", US), ("drain_1", US), 0.5),
    Target("dependencies : plain", ("real_edges", US), ("drain_1", US), 0.5),
    Target("5 ms of I/O : PgQueuer", ("real_io", US), ("real_io", "pgqueuer"), 1),
    Target("1 kB : PgQueuer", ("real_1k", US), ("real_1k", "pgqueuer"), 1),
    Target("64 kB : PgQueuer", ("real_64k", US), ("real_64k", "pgqueuer"), 1),
    Target("memory of an idle worker (MB)", ("memory_mb", US), None, 45, True),
    Target("CPU of the import of App (s)", ("import_cpu", US), None, 0.25, True),
    Target("`shiftboss tasks list` (s)", ("list_seconds", US), None, 0.3, True),
    Target("growth of the admin service (MB)", ("admin_growth_mb", US), None, 30, True),
    Target("soak, last : first, rate", ("soak_rate", US), None, 0.9),
    Target("soak, last : first, pick-up", ("soak_pick_up_p50", US), None, 1.2, True),
    Target("soak, last : first, table", ("soak_heap", US), None, 1.1, True),
    Target("soak, last : first, indexes", ("soak_indexes", US), None, 1.1, True),
    Target("soak, last : first, memory", ("soak_worker", US), None, 1.1, True),
    Target("soak beside an open transaction, rate", ("soak_held_rate", US), None, 0.7),
    Target("... and after it", ("soak_held_recovered", US), None, 0.9),
    Target("no-op tasks over gRPC (tasks/s)", ("coordinator_rate", US), None, 15_000),
    Target("1,000 beating workers (% of a core)", ("coordinator_beats", US), None, 15, True),
    Target("200 workers that register at once (s)", ("coordinator_joined", US), None, 5, True),
)


Value = Callable[[str, str], float | None]


def reader(result: dict[str, Any]) -> Value:
    """The median of a figure of a system, None where it was not measured."""

    def value(key: str, name: str) -> float | None:
        found = result["figures"].get(key, {}).get(name)
        return None if found is None else found["median"]

    return value


def write(result: dict[str, Any], pages: Path = PAGES) -> None:
    pages.mkdir(parents=True, exist_ok=True)
    figures, value = result["figures"], reader(result)
    names = [name for name in LABELS if any(name in by_system for by_system in figures.values())]
    charts = [chart(value, names, name, keys, unit, pages) for name, (keys, unit) in CHARTS.items()]
    text = [
        "# Benchmarks",
        "",
        "Written by `bench/run`; `bench/README.md` describes the measurements. All systems are measured in",
        "turn in one run on one machine, and each number is the median of its rounds. PostgreSQL is durable",
        "(`fsync` and `synchronous_commit` are on); the Redis-compatible server does not write to disk.",
        "“The limit” is the same SQL in a plain loop on one connection, without a queue library.",
        "",
        *about(result),
        "",
        "## Targets",
        "",
        *targets(result),
        "",
        "## Figures",
        "",
        *table(value, names),
        "",
        *(f"![{name}]({name}.svg)" for name in charts if name),
    ]
    (pages / "index.md").write_text("\n".join(text) + "\n")


def shared(m: dict[str, Any]) -> str:
    together = m.get("two_at_once")
    return f" (two busy loops together run {together} times as fast as one)" if together else ""


def about(result: dict[str, Any]) -> list[str]:
    m = result["machine"]
    peers = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return [
        f"- Machine: {m['cpu']}, {m['cores']} cores{shared(m)}, {m['memory_gb']} GB, {m['system']};"
        f" load before the run {m['load_before']}, after it {m['load_after']}",
        f"- Servers: {m['postgres']}, {m['redis']}; Python {m['python']}",
        f"- Versions: {peers}",
        f"- {result['rounds']} rounds, {m['at']}",
        *(f"- {note}" for note in result.get("notes", [])),
    ]


def targets(result: dict[str, Any]) -> list[str]:
    lines = ["| ratio | measured | spread of the rounds | target | |", "|---|--:|--:|--:|---|"]
    for target in TARGETS:
        found = measured(result, target)
        if found is None:
            continue
        middle, rounds = found
        sign = "≤" if target.at_most else "≥"
        verdict = "hit" if target.hit(middle) else "**miss**"
        spread = f"{min(rounds):.3g} – {max(rounds):.3g}" if len(rounds) > 1 else ""
        lines.append(f"| {target.what} | {middle:.3g} | {spread} | {sign} {target.bound:g} | {verdict} |")
    return lines


def measured(result: dict[str, Any], target: Target) -> tuple[float, list[float]] | None:
    """The figure or the ratio of medians, and that of each round in which both were measured."""

    def figure(key: str, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = result["figures"].get(key, {}).get(name)
        return found

    one = figure(*target.of)
    if one is None or target.to is None:
        return None if one is None else (one["median"], one["rounds"])
    other = figure(*target.to)
    if other is None or not other["median"]:
        return None
    pairs = zip(one["rounds"], other["rounds"], strict=False)
    return one["median"] / other["median"], [a / b for a, b in pairs if b]


def table(value: Value, names: list[str]) -> list[str]:
    lines = ["| | " + " | ".join(LABELS[name] for name in names) + " |", "|---" + "|--:" * len(names) + "|"]
    for key, label in ROWS.items():
        cells = [_cell(value(key, name), at_most=LONGEST.get(key)) for name in names]
        if any(cell != "–" for cell in cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def _cell(number: float | None, at_most: float | None = None) -> str:
    if number is None:
        return "–"
    if at_most is not None and number >= at_most:
        return f"> {at_most:g}"
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 1 else f"{number:.2f}"


def chart(
    value: Value, names: list[str], name: str, keys: dict[str, str], unit: str, pages: Path
) -> str | None:
    shown = [n for n in names if any(value(key, n) is not None for key in keys)]
    if not shown:
        return None
    plt.rcParams.update({"svg.hashsalt": "shiftboss", "font.size": 10})
    figure, axes = plt.subplots(figsize=(8, 0.7 * len(shown) + 1))
    height = 0.8 / len(keys)
    for n, (key, label) in enumerate(keys.items()):
        places = [at + n * height for at in range(len(shown))]
        widths = [value(key, system) or 0 for system in shown]
        colours = [COLOURS.get(system, "#4c6ef5") for system in shown]
        bars = axes.barh(places, widths, height * 0.92, color=colours, alpha=1 - 0.4 * n, label=label)
        axes.bar_label(bars, [f"{_cell(width)}  {label}" for width in widths], padding=3, fontsize=8)
    axes.set_yticks([at + 0.4 - height / 2 for at in range(len(shown))], [LABELS[s] for s in shown])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.margins(x=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(pages / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    return name
