"""The report on the mutants: how many were noticed, and what is known of those that were not."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks/mutants.md"
REASONS = Path(__file__).with_name("reasons.toml")
HEAD = """# Mutants

`python -m bench.mutants run` makes one small change at a time to the SQL of the queue or the core of the
worker (a comparison, a condition, a status, a lock, a sum, a removed statement), runs the tests, and records
whether one of them fails. A failure counts only if it is repeatable. A seed selects the changes at random.
Fast tests run first, the others only for what the fast ones miss.

"""


def write(found: list[dict[str, Any]], shares: dict[str, int]) -> None:
    """Write the page from what is known so far."""
    reasons = tomllib.loads(REASONS.read_text()) if REASONS.exists() else {}
    judged = [one for one in found if one["verdict"] != "stillborn"]
    PAGE.write_text(HEAD + table(judged, shares) + survivors(judged, reasons))
    print(f"{PAGE.relative_to(ROOT)}: {len(judged)} of {sum(shares.values())} mutants")


def table(judged: list[dict[str, Any]], shares: dict[str, int]) -> str:
    lines = [
        "| target | drawn | tried | noticed | survived | missed by the fast tests, others not run |",
        "|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for target, drawn in shares.items():
        count = Counter(one["verdict"] for one in judged if one["target"] == target)
        row = {
            "drawn": drawn,
            "tried": count.total(),
            "noticed": count["killed"] + count["timeout"],
            "survived": count["survived"],
            "open": count["unnoticed"],
        }
        total.update(row)
        lines.append(f"| {target} | {' | '.join(map(str, row.values()))} |")
    lines.append(f"| **all** | {' | '.join(str(total[name]) for name in row)} |")
    told = f"""
{total["tried"]} of {total["drawn"]} mutants were tried so far: {total["noticed"]} were noticed,
{total["survived"]} survived all tests, and {total["open"]} are open, because the fast tests missed them and
the others have not run yet. The goal, 90 % noticed, is not proven until the open ones are decided and the
others are tried.
"""
    return "\n".join(lines) + "\n" + told


def survivors(judged: list[dict[str, Any]], reasons: dict[str, str]) -> str:
    left = [one for one in judged if one["verdict"] in ("survived", "unnoticed")]
    lines = [
        "\n## Not noticed\n",
        "| mutant | where | change | verdict | what is known |",
        "|---|---|---|---|---|",
    ]
    for one in sorted(left, key=lambda one: (one["target"], one["function"], one["line"])):
        old, new = (shown(one[side]) for side in ("old", "new"))
        where = f"`{one['function']}`, {Path(one['file']).name}:{one['line']}"
        verdict = "survived" if one["verdict"] == "survived" else "open"
        reason = reasons.get(one["id"], "not looked at yet")
        lines.append(f"| {one['id']} | {where} | `{old}` → `{new}` | {verdict} | {reason} |")
    return "\n".join(lines) + "\n"


def shown(text: str) -> str:
    plain = " ".join(text.split()).replace("|", "\\|")
    return (plain if len(plain) <= 60 else plain[:57] + "...") or "(nothing)"
