"""What is changed, and which tests should notice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
TESTS = [
    *(
        f"tests/queue/test_{name}.py"
        for name in (
            *("small_rules", "queue", "rules", "blame", "durable_sql", "lease_numbers", "edges", "fairness"),
            *("sessions", "locks", "contract", "plain_sql", "errors", "property", "storm", "history"),
            *("isolation", "lanes", "claim_rules", "end_rules", "rescue_rules", "enqueue_rules"),
        )
    ),
    *(
        f"tests/worker/test_{name}.py"
        for name in (
            *("small_rules", "runtime", "delivery", "abandoned", "bad_input", "steps", "suspended", "waits"),
            *("outage", "hooks", "streams", "enough", "children", "logs", "versions", "same_name", "kills"),
            *("sleeper", "process", "attached", "approvals", "executor", "outbox", "heart"),
        )
    ),
    *(
        f"tests/app/test_{name}.py"
        for name in ("limits", "graphs", "unique", "retries", "terms", "around", "batches", "app")
    ),
    "tests/db/test_lease.py",
]
#: A migration calls the one, and PostgreSQL inlines some calls of the other: any test may notice.
ANYWHERE = ("guard_tasks", "backoff")
#: Seconds of tests in the first group, by what each took when nothing was changed.
QUICK = 25.0
Cover = dict[str, dict[str, Any]]


def stages(site: Site, cover: Cover, killers: Sequence[str] = ()) -> list[list[str]]:
    """The tests that reach this place in two groups, the quick and narrow ones first.

    Tests that killed another mutant of the same function go before all others.
    """
    first = [name for name in dict.fromkeys(killers) if name in cover][:5]
    rest = sorted(
        (name for name in cover if name not in first and reaches(cover[name], site, cover)),
        key=lambda name: cover[name]["seconds"] * (len(cover[name]["sql"]) + len(cover[name]["python"])),
    )
    left, quick = QUICK, list(first)
    for name in rest:
        left -= cover[name]["seconds"]
        if left < 0:
            break
        quick.append(name)
    return [quick, [name for name in rest if name not in quick]]


def reaches(seen: dict[str, Any], site: Site, cover: Cover) -> bool:
    """Whether a test runs this function. PostgreSQL counts no calls of one that it inlines: all tests may."""
    if site.file.endswith(".sql"):
        counted = site.function not in ANYWHERE and any(site.function in one["sql"] for one in cover.values())
        return site.function in seen["sql"] if counted else bool(seen["sql"])
    if not seen["python"]:
        return bool(seen["sql"])  # its workers may run in processes of their own
    return site.function == "module" or f"{Path(site.file).name}:{site.function}" in seen["python"]


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
