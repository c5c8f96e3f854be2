"""What is changed, and which tests should notice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from bench.mutants import python_sites, sql_sites
from bench.mutants.sites import Site

SQL = "src/shiftboss/sql/functions"
WORKER = "src/shiftboss/worker"
TARGETS: dict[str, list[tuple[str, set[str] | None]]] = {
    "claim": [(f"{SQL}/20_claim.sql", None), (f"{SQL}/21_claim_limits.sql", None)],
    "finish": [(f"{SQL}/30_finish.sql", None), (f"{SQL}/33_settle.sql", None)],
    "rescue": [
        (f"{SQL}/40_registry.sql", {"alive_until"}),
        (f"{SQL}/42_rescue.sql", None),
        (f"{SQL}/41_blame.sql", None),
    ],
    "enqueue": [(f"{SQL}/10_enqueue.sql", None)],
    "executor": [(f"{WORKER}/executor.py", None)],
    "outbox": [(f"{WORKER}/outbox.py", None)],
    "heart": [(f"{WORKER}/heart.py", None)],
}
QUEUE = [
    f"tests/{name}.py"
    for name in (
        "queue/test_small_rules",
        "queue/test_queue",
        "queue/test_rules",
        "queue/test_blame",
        "queue/test_durable_sql",
        "queue/test_lease_numbers",
        "queue/test_edges",
    )
]
QUEUE_MORE = [
    f"tests/{name}.py"
    for name in (
        "app/test_limits",
        "app/test_graphs",
        "app/test_unique",
        "app/test_retries",
        "app/test_terms",
        "queue/test_fairness",
        "queue/test_sessions",
        "queue/test_locks",
        "queue/test_contract",
        "queue/test_plain_sql",
        "queue/test_errors",
        "db/test_lease",
        "queue/test_property",
        "queue/test_storm",
        "queue/test_history",
        "worker/test_runtime",
        "worker/test_waits",
        "worker/test_suspended",
        "queue/test_isolation",
    )
]
WORK = [
    f"tests/{name}.py"
    for name in (
        "worker/test_small_rules",
        "worker/test_runtime",
        "worker/test_delivery",
        "worker/test_abandoned",
        "worker/test_bad_input",
        "worker/test_steps",
    )
]
WORK_MORE = [
    f"tests/{name}.py"
    for name in (
        "worker/test_suspended",
        "worker/test_waits",
        "worker/test_outage",
        "worker/test_hooks",
        "app/test_around",
        "app/test_batches",
        "app/test_retries",
        "worker/test_streams",
        "worker/test_enough",
        "worker/test_children",
        "worker/test_logs",
        "worker/test_versions",
        "worker/test_same_name",
        "worker/test_kills",
        "worker/test_sleeper",
        "app/test_app",
        "worker/test_process",
    )
]


def stages(site: Site) -> list[list[str]]:
    """Groups of test files, the quick ones first."""
    return [QUEUE, QUEUE_MORE] if site.file.endswith(".sql") else [WORK, WORK_MORE]


def all_sites(tree: Path, target: str) -> Iterator[Site]:
    for file, functions in TARGETS[target]:
        text = (tree / file).read_text()
        if file.endswith(".sql"):
            yield from sql_sites.sites(target, file, text, functions)
        else:
            yield from python_sites.sites(target, file, text)


def drawn(tree: Path, seed: int) -> dict[str, list[Site]]:
    """All sites of each target in a random order; the runner takes them from the front."""
    orders = {}
    for target in TARGETS:
        found = sorted({site.id: site for site in all_sites(tree, target)}.values(), key=lambda site: site.id)
        random.Random(f"{seed}:{target}").shuffle(found)
        orders[target] = found
    return orders


def shares(count: int) -> dict[str, int]:
    """How many mutants of each target make up `count`."""
    names = list(TARGETS)
    return {name: count // len(names) + (place < count % len(names)) for place, name in enumerate(names)}
