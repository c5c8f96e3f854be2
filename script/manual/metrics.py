"""Every metric, read from the calls that make them."""

from __future__ import annotations

import ast
from pathlib import Path

from manual.markdown import cell, code, sentence, table

SOURCE = Path(__file__).resolve().parents[2] / "src" / "shiftboss"
KINDS = {
    "gauge": "gauge",
    "counter": "counter",
    "GaugeMetricFamily": "gauge",
    "CounterMetricFamily": "counter",
}
#: Written as text, because there are many of them.
PER_WORKER = [
    (
        "worker_tasks_processed_total",
        "counter",
        ["worker_id", "task_type", "status"],
        "Attempts that ended, by worker, type and status",
    ),
    (
        "worker_processing_duration_seconds",
        "histogram",
        ["worker_id", "task_type"],
        "How long attempts took, by worker and type",
    ),
]


def text() -> str:
    found = [*PER_WORKER]
    for path in sorted(SOURCE.rglob("metrics.py")):
        found += [one for node in ast.walk(ast.parse(path.read_text())) if (one := _metric(node))]
    rows = [
        (code(name + ("{" + ",".join(labels) + "}" if labels else "")), kind, cell(sentence(about)))
        for name, kind, labels, about in sorted(set_of(found))
    ]
    return "\n".join(table(("name and labels", "kind", "meaning"), rows))


def set_of(found: list[tuple[str, str, list[str], str]]) -> list[tuple[str, str, list[str], str]]:
    return list({one[0]: one for one in found}.values())


def _metric(node: ast.AST) -> tuple[str, str, list[str], str] | None:
    match node:
        case ast.Call(
            func=ast.Name(id=kind),
            args=[ast.Constant(value=str(name)), ast.Constant(value=str(about)), *_],
            keywords=keywords,
        ) if kind in KINDS:
            labels = [
                str(ast.literal_eval(label))
                for keyword in keywords
                if keyword.arg == "labels" and isinstance(keyword.value, ast.List)
                for label in keyword.value.elts
            ]
            counter = KINDS[kind] == "counter" and not name.endswith("_total")
            return name + ("_total" if counter else ""), KINDS[kind], labels, about
    return None
