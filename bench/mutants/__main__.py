"""Mutants of the queue and the worker, one after the other; each is to be noticed by a test.

python -m bench.mutants check                   # what each test takes and reaches without a mutant
python -m bench.mutants run --seconds 3600      # goes on where the last call stopped
python -m bench.mutants run --slice 0/2         # every second one, for two at a time
python -m bench.mutants run --only 1f2e3d4c     # again, after a test was added
python -m bench.mutants report                  # writes docs/benchmarks/mutants.md
"""

from __future__ import annotations

import argparse
import fcntl
import json
import signal
import sys
import time
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from bench.mutants import report
from bench.mutants.runner import ROOT, Bench, bench
from bench.mutants.sites import Site
from bench.mutants.targets import TESTS, Cover, drawn, shares, stages

RESULTS = ROOT / "bench/results/mutants.jsonl"
COVER = ROOT / ".pytest_cache/mutants.json"
SHOWN = ("verdict", "seconds", "target", "function", "line", "kind", "old", "by")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("command", choices=["run", "check", "report", "list"])
    words.add_argument("--seed", type=int, default=26)
    words.add_argument("--count", type=int, default=200)
    words.add_argument("--slice", default="0/1", help="the part and how many parts there are: 0/2")
    words.add_argument("--seconds", type=float, default=1e9, help="begin no other mutant after this long")
    words.add_argument(
        "--quick", action="store_true", help="the quick tests only; a later call does the others"
    )
    words.add_argument("--only", nargs="*", help="ids of mutants to run again, whatever was found before")
    words.add_argument("--tests", nargs="*", help="these files only: of a check, or with --only")
    words.add_argument("--results", type=Path, default=RESULTS)
    given = words.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the server ends as well
    if given.command == "report":
        report.write(list(known(given.results).values()), shares(given.count))
    elif given.command == "list":
        for target, sites in drawn(ROOT, given.seed).items():
            print(f"{target}: {len(sites)} places")
    else:
        {"check": check, "run": run}[given.command](given)


def check(given: argparse.Namespace) -> None:
    """Tests that fail without a mutant would kill every mutant: only those that pass now are used."""
    with bench() as here:
        found = here.cover(given.tests or TESTS)
    COVER.parent.mkdir(exist_ok=True)
    before = json.loads(COVER.read_text()) if given.tests and COVER.exists() else {}
    COVER.write_text(json.dumps(before | found))
    print(f"{len(found)} tests, {sum(one['seconds'] for one in found.values()):.0f} seconds")


def run(given: argparse.Namespace) -> None:
    """The targets take turns, so that a run that is cut short has looked at all of them."""
    part, parts = map(int, given.slice.split("/"))
    deadline = time.monotonic() + given.seconds
    cover = json.loads(COVER.read_text())
    with bench() as here:
        queues = []
        for target, sites in drawn(here.tree, given.seed).items():
            wanted = shares(given.count)[target]
            mine = sites[part::parts]
            share = wanted // parts + (part < wanted % parts)
            if given.only:
                mine, share = [site for site in sites if site.id in given.only], len(sites)
            queues.append(work(here, mine, share, given, cover))
        for _ in chain.from_iterable(zip_longest(*queues)):
            if time.monotonic() > deadline:
                return


def work(
    here: Bench, sites: list[Site], share: int, given: argparse.Namespace, cover: Cover
) -> Iterator[None]:
    """Judge `share` of these, one at a time; those that do not compile make room for others."""
    done = 0
    for site in sites:
        if done >= share:
            return
        before = None if given.only else known(given.results).get(site.id)
        found = before or {}
        if before is None or (before["verdict"] == "unnoticed" and not given.quick):
            found = here.judge(site, groups(site, given, cover))
            if found["verdict"] == "unnoticed" and not given.quick:
                found["verdict"] = "survived"
            if not given.tests or found["verdict"] == "killed":
                keep(given.results, found)
            print(*(str(found[key]) for key in SHOWN), flush=True)
        if found["verdict"] != "stillborn":
            done += 1
            yield


def groups(site: Site, given: argparse.Namespace, cover: Cover) -> list[list[str]]:
    """The groups of tests that are to run now, those that killed mutants of this function first."""
    killers = [
        found["by"]
        for found in known(given.results).values()
        if found["verdict"] == "killed" and (found["file"], found["function"]) == (site.file, site.function)
    ]
    found = stages(site, cover, killers)
    if given.tests:
        found = [[name for name in names if name.startswith(tuple(given.tests))] for names in found]
    return found[:1] if given.quick else found


def known(results: Path) -> dict[str, dict[str, Any]]:
    """The last verdict on each mutant."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {found["id"]: found for found in map(json.loads, lines)}


def keep(results: Path, found: dict[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
