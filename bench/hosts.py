"""Run a fleet on several hosts whose networks are cut and restored at random.

    python bench/hosts.py [--minutes 5] [--hosts 4] [--rate 4] [--seed 1]

Every host is a network namespace (needs root); the last one has a slow and lossy line. Tasks of up to 6
seconds note twenty times a second that they run. At the end everything is healed and drained. Prints one JSON
object; exits with 1 if a task ended twice, was left behind, or ran in two places at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any

from tests.network import Host, Link, missing, netem
from tests.site import Site, one_after_another, site, ticks_in

from shiftboss.db import Database
from shiftboss.model.task import NewTask

BAD = Link(delay=0.05, loss=0.05)


async def pour(db: Database, place: Site, rate: float, ids: list[str]) -> None:
    """Enqueue at this rate until cancelled."""
    while True:
        name = f"t{len(ids)}"
        params = {"ticks": str(place.place / f"{name}.ticks"), "seconds": round(random.uniform(0.1, 6), 1)}
        await db.tasks.enqueue([NewTask(task_type="tick", params=params)])
        ids.append(name)
        await asyncio.sleep(1 / rate)


async def disturb(place: Site, hosts: list[Host], until: float) -> Counter[str]:
    """Disconnect one host, or half of them, briefly or for longer than a lease, and reconnect them."""
    done: Counter[str] = Counter()
    while time.monotonic() < until:
        await asyncio.sleep(random.uniform(1, 6))
        some = random.sample(hosts, random.choice([1, 1, max(len(hosts) // 2, 1)]))
        for host in some:
            place.net.cut(host, place.db)
        pause = random.choice([random.uniform(0.2, 3), random.uniform(9, 16)])
        await asyncio.sleep(pause)
        for host in some:
            place.net.heal(host, place.db)
        done["cuts"] += len(some)
        done["cuts_longer_than_a_lease"] += len(some) * (pause > 8)
    return done


async def drained(db: Database, seconds: float = 120.0) -> int:
    """Wait until no task is left, or for this time. Returns the number of unfinished tasks."""
    query = "SELECT count(*) AS n FROM tasks WHERE status IN ('Queued', 'In Progress')"
    deadline = time.monotonic() + seconds
    while True:
        left = int((await db.fetch(query))[0]["n"])
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.5)


async def campaign(place: Site, given: argparse.Namespace) -> dict[str, Any]:
    await place.prepare()
    hosts = [place.net.host(f"h{n}", BAD if n == given.hosts - 1 else None) for n in range(given.hosts)]
    for host in hosts:
        place.worker(host, host.name, concurrency=8)
    async with await Database.open(place.url) as db:
        ids: list[str] = []
        pouring = asyncio.create_task(pour(db, place, given.rate, ids))
        done = await disturb(place, hosts, time.monotonic() + given.minutes * 60)
        pouring.cancel()
        left = await drained(db)
        twice = await db.fetch("SELECT id FROM audit GROUP BY id HAVING count(*) > 1")
        rows = await db.fetch("SELECT status, worker_id, attempts FROM tasks")
    seen = [ticks_in(place.place / f"{name}.ticks") for name in ids]
    return {
        **done,
        "hosts": given.hosts,
        "bad_line_by": "tc netem" if netem() else "a TAP cable",
        "tasks": len(rows),
        "left": left,
        "not_complete": sum(row["status"] != "Complete" for row in rows),
        "finished_twice": len(twice),
        "ran_in_two_places_at_once": sum(not one_after_another(ticks) for ticks in seen),
        "ran_more_than_once": sum(len({tick.lease for tick in ticks}) > 1 for ticks in seen),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", type=float, default=4.0, help="tasks per second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if reason := missing():
        parser.error(reason)
    random.seed(given.seed)
    with site() as place:
        found = asyncio.run(campaign(place, given))
    print(json.dumps({"seed": given.seed} | found, indent=1))
    return int(any(found[name] for name in ("not_complete", "finished_twice", "ran_in_two_places_at_once")))


if __name__ == "__main__":
    sys.exit(main())
