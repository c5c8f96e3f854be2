"""A fleet on real networks: hosts join, are slow, are cut off, heal and leave. `bench/hosts.py` does it for longer."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shiftboss.db import Database
from shiftboss.model.access import Role
from shiftboss.model.task import NewTask
from tests.network import Link, missing
from tests.site import COORDINATOR, Site, Tick, one_after_another, site, ticks_in

WORKERS = {"a", "b", "c", "d", "fed"}


@pytest.fixture
def place() -> Iterator[Site]:
    if reason := missing():
        pytest.skip(reason)
    with site() as made:
        yield made


class Fleet:
    """Five workers on four hosts: `c` has a bad line, and `fed` is beside `d` and fed by a coordinator."""

    def __init__(self, place: Site, db: Database) -> None:
        self.place, self.db = place, db
        hosts = {name: place.net.host(name) for name in ("coordinator", "a", "b", "d")}
        self.hosts = hosts | {"c": place.net.host("c", Link(delay=0.03, loss=0.03))}
        self.tasks: dict[UUID, str] = {}

    async def join(self) -> None:
        secret = await self.db.tokens.create_token("fleet", Role.WORKER)
        address = self.hosts["coordinator"].address
        self.place.shiftboss(
            self.hosts["coordinator"], "coordinator", "--host", "0.0.0.0", "--port", str(COORDINATOR)
        )
        self.processes = {name: self.place.worker(self.hosts[name], name) for name in "abcd"}
        fed = ("--coordinator", f"{address}:{COORDINATOR}")
        self.processes["fed"] = self.place.worker(
            self.hosts["d"], "fed", *fed, database=False, SHIFTBOSS_COORDINATOR_TOKEN=secret
        )

    async def enqueue(self, count: int) -> None:
        for _ in range(count):
            name = f"t{len(self.tasks)}"
            params = {"ticks": str(self.ticks(name)), "flag": str(self.flag(name))}
            [made] = await self.db.tasks.enqueue([NewTask(task_type="hold", params=params)])
            self.tasks[made.id] = name

    def ticks(self, name: str) -> Path:
        return self.place.place / f"{name}.ticks"

    def flag(self, name: str) -> Path:
        return self.place.place / f"{name}.flag"

    async def running(self) -> dict[str, str]:
        """The worker that holds a task, and its task."""
        rows = await self.db.fetch("SELECT id, worker_id FROM tasks WHERE status = 'In Progress'")
        return {row["worker_id"]: self.tasks[row["id"]] for row in rows}

    async def all_busy(self) -> bool:
        held = await self.running()
        return held.keys() == WORKERS and all(self.ticks(task).exists() for task in held.values())

    async def complete(self) -> bool:
        rows = await self.db.fetch("SELECT count(*) AS n FROM tasks WHERE status = 'Complete'")
        return bool(rows[0]["n"] == len(self.tasks))

    def seen(self, name: str) -> list[Tick]:
        return ticks_in(self.ticks(name))


@pytest.mark.timeout(180)
async def test_hosts_are_cut_off_and_come_back(place: Site, eventually: Any) -> None:
    await place.prepare()
    async with await Database.open(place.url) as db:
        fleet = Fleet(place, db)
        await fleet.join()
        await fleet.enqueue(5)
        await eventually(fleet.all_busy, timeout=60, what="every worker has a task, the slow one as well")
        held = await fleet.running()

        net, hosts = place.net, fleet.hosts
        net.cut(hosts["a"], place.db)
        net.cut(hosts["d"], hosts["coordinator"])
        cut = time.time()
        for worker in ("b", "c"):  # these two are free then
            fleet.flag(held[worker]).touch()
        lost = {held["a"], held["fed"]}

        async def moved() -> bool:
            now = await fleet.running()
            return lost == {now.get("b"), now.get("c")} and all(fleet.seen(t)[-1].host in "bc" for t in lost)

        await eventually(moved, timeout=40, what="the tasks of the lost hosts run elsewhere")
        for task, host in ((held["a"], "a"), (held["fed"], "d")):
            seen = fleet.seen(task)
            assert one_after_another(seen), f"{host} went on with {task} after another host had begun"
            assert max(tick.at for tick in seen if tick.host == host) > cut, "it ran until its line was cut"
        row = await db.fetch_one(
            "SELECT last_heartbeat > now() - interval '4 s' AS beats FROM workers WHERE id = 'd'"
        )
        assert row == {"beats": True}, "only the coordinator is out of reach for d"

        net.heal(hosts["a"], place.db)
        net.heal(hosts["d"], hosts["coordinator"])
        await fleet.enqueue(2)
        await eventually(fleet.all_busy, timeout=60, what="those that were cut off have work again")

        fleet.processes["b"].send_signal(signal.SIGTERM)  # it leaves, and gives back what it has
        assert fleet.processes["b"].wait(30) == 0
        for name in fleet.tasks.values():
            fleet.flag(name).touch()
        await eventually(fleet.complete, timeout=40)
        ended = await db.fetch("SELECT id, count(*) AS times FROM audit GROUP BY id")
        assert {row["id"]: row["times"] for row in ended} == dict.fromkeys(fleet.tasks, 1)
        assert all(one_after_another(fleet.seen(name)) for name in fleet.tasks.values())
