"""Many workers at once, each on a connection of its own, doing everything that can be done to tasks.

The stateful test next door takes one step after the other; here the steps truly overlap. An observer looks on all the
while, and in the end every lease that was ever given out must have ended once, in the way its holder was told.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID, uuid4

import orjson
import psycopg
import pytest

from tests.servers import direct

WORKERS = 5
STEPS = 200
TYPES = ("keyed", "rated", "plain")
MOST_RUNNING, MOST_PER_KEY, RATE = 4, 1, 10
FINAL = {"Complete", "Failed", "Cancelled"}

#: How a holder ends a lease, and what the history calls it.
ENDS = {
    "complete": ("shiftboss.complete(%s, %s, array_fill('1'::jsonb, ARRAY[{n}]))", {"complete"}),
    "fail": ("shiftboss.fail(%s, %s, array_fill('boom'::text, ARRAY[{n}]))", {"failed"}),
    "crash": (
        "shiftboss.fail(%s, %s, array_fill('boom'::text, ARRAY[{n}]), array_fill('crashed'::text, ARRAY[{n}]))",
        {"crashed"},
    ),
    "defer": (
        "shiftboss.defer(%s, %s, array_fill(interval '20 ms', ARRAY[{n}]), array_fill('x'::text, ARRAY[{n}]))",
        {"deferred"},
    ),
    "release": (
        "shiftboss.defer(%s, %s, array_fill(interval '0', ARRAY[{n}]), array_fill('x'::text, ARRAY[{n}]))",
        {"released"},
    ),
    "cancelled": ("shiftboss.cancelled(%s, %s)", {"cancelled"}),
}


class Storm:
    """What all of them know together."""

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.seed = url, seed
        self.made: list[UUID] = []
        self.retried: set[UUID] = set()
        self.issued: dict[int, UUID] = {}
        self.accepted: dict[int, str] = {}
        self.refused: set[int] = set()
        self.over = asyncio.Event()

    async def connect(self) -> psycopg.AsyncConnection[Any]:
        conn = await psycopg.AsyncConnection.connect(direct(self.url), autocommit=True)
        await conn.execute("SET default_transaction_isolation = 'read committed'")
        return conn

    async def blow(self) -> None:
        async with await self.connect() as conn:
            await conn.execute(
                "SELECT shiftboss.set_limit('task_type', 'keyed', %s, %s)", [MOST_RUNNING, MOST_PER_KEY]
            )
            await conn.execute(
                "SELECT shiftboss.set_limit('task_type', 'rated', NULL, NULL, %s, '1 second')", [RATE]
            )
        began = time.monotonic()
        watching = asyncio.create_task(Observer(self).watch())
        try:
            async with asyncio.TaskGroup() as group:
                for n in range(WORKERS):
                    group.create_task(Hand(self, f"w{n}", Random(self.seed * 100 + n)).work())
        finally:
            self.over.set()
            await watching
        await self.judge(time.monotonic() - began)

    async def judge(self, seconds: float) -> None:
        async with await self.connect() as conn:
            await self.judge_waiting(conn)
            await self.judge_rate(conn, seconds)
            await self.drain(conn)
            await self.judge_history(conn)

    async def judge_waiting(self, conn: psycopg.AsyncConnection[Any]) -> None:
        rows = await fetch(
            conn,
            "SELECT t.id, w.reason FROM tasks t LEFT JOIN LATERAL shiftboss.why(t.id) w ON true"
            " WHERE t.status = 'Queued'",
        )
        assert all(reason for _, reason in rows), "a task waits without a reason"

    async def judge_rate(self, conn: psycopg.AsyncConnection[Any], seconds: float) -> None:
        ids = {id for (id,) in await fetch(conn, "SELECT id FROM tasks WHERE task_type = 'rated'")}
        started = sum(id in ids for id in self.issued.values())
        assert started <= RATE * (seconds + 1), f"{started} starts in {seconds:.1f} s"

    async def drain(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """With all hindrances gone everything that waits can be done, and all that was made is there."""
        for kind in TYPES:
            await conn.execute("SELECT shiftboss.resume('task_type', %s)", [kind])
            await conn.execute("SELECT shiftboss.set_limit('task_type', %s)", [kind])
        for hours in range(1, 50):
            later = f"{hours} hours"
            await conn.execute(
                "SELECT set_config('shiftboss.now', (clock_timestamp() + %s::interval)::text, false)", [later]
            )
            await conn.execute("SELECT * FROM shiftboss.rescue()")
            rows = await fetch(conn, "SELECT id, lease FROM shiftboss.claim('last', 500)")
            ids, leases = [row[0] for row in rows], [row[1] for row in rows]
            self.issued |= dict(zip(leases, ids, strict=True))
            self.accepted |= dict.fromkeys(leases, "complete")
            if ids:
                assert await fetch(conn, "SELECT shiftboss.complete(%s, %s, NULL)", ids, leases) == [([],)]
            elif hours > 1:
                break
        tasks = dict(await fetch(conn, "SELECT id, status FROM tasks"))
        assert tasks.keys() == set(self.made), "tasks were lost"
        stuck = await fetch(
            conn,
            "SELECT t.id, t.hold, t.depends_on, t.run_at, array_agg(w.reason) FROM tasks t, shiftboss.why(t.id) w"
            " WHERE t.status = 'Queued' GROUP BY t.id",
        )
        assert not stuck, stuck
        assert set(tasks.values()) <= FINAL, Counter(tasks.values())
        assert not await fetch(conn, "SELECT * FROM shiftboss.dependencies")

    async def judge_history(self, conn: psycopg.AsyncConnection[Any]) -> None:
        rows = await fetch(
            conn,
            "SELECT lease, task_id, outcome FROM shiftboss.attempts WHERE lease IS NOT NULL ORDER BY lease",
        )
        twice = [lease for lease, n in Counter(row[0] for row in rows).items() if n > 1]
        assert not twice, f"leases that ended twice: {twice}"
        history = {lease: (id, outcome) for lease, id, outcome in rows}
        assert {lease: id for lease, (id, _) in history.items()} == self.issued, "leases without an end"
        assert self.refused, "nobody was ever too late: this was no storm"
        assert {outcome for _, outcome in history.values()} == {"lost", "interrupted"}.union(
            *(words for _, words in ENDS.values())
        )
        for lease, (id, outcome) in history.items():
            if lease in self.accepted:
                assert outcome in ENDS[self.accepted[lease]][1], (id, lease, outcome, self.accepted[lease])
            else:
                assert outcome in ("lost", "interrupted"), (
                    f"lease {lease} of {id} ended as {outcome}, by nobody"
                )


class Observer:
    """What must hold at every moment; each look is one snapshot."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.final: dict[UUID, tuple[str, Any]] = {}

    async def watch(self) -> None:
        async with await self.storm.connect() as conn:
            while not self.storm.over.is_set():
                before = set(self.storm.made)
                rows = await fetch(
                    conn,
                    "SELECT id, status, task_type, concurrency_key, dedup_key, lease, worker_id, result_data FROM tasks",
                )
                self.look(before, rows)
                await asyncio.sleep(0)

    def look(self, made: set[UUID], rows: list[Any]) -> None:
        assert made <= {row[0] for row in rows}, "a task is gone"
        running = [row for row in rows if row[1] == "In Progress"]
        keyed = [row for row in running if row[2] == "keyed"]
        assert len(keyed) <= MOST_RUNNING, f"{len(keyed)} run, {MOST_RUNNING} may"
        keys = Counter(row[3] for row in keyed if row[3] is not None)
        assert all(n <= MOST_PER_KEY for n in keys.values()), keys
        leases = Counter(row[5] for row in running)
        assert all(n == 1 for lease, n in leases.items() if lease is not None), leases
        dedup = Counter(row[4] for row in rows if row[4] and row[1] not in FINAL)
        assert all(n == 1 for n in dedup.values()), dedup
        for id, status, *_, worker, result in rows:
            assert status != "Queued" or worker is None
            if status in FINAL and id not in self.storm.retried:
                assert self.final.setdefault(id, (status, result)) == (status, result), (
                    "a finished task changed"
                )


class Hand:
    """One worker, and one of those who steer."""

    def __init__(self, storm: Storm, name: str, chance: Random) -> None:
        self.storm, self.name, self.chance = storm, name, chance
        self.held: dict[int, UUID] = {}
        self.past: list[tuple[int, UUID]] = []

    async def work(self) -> None:
        steps = [
            (self.enqueue, 5), (self.claim, 8), (self.end, 10), (self.extend, 2), (self.late, 5),
            (self.cancel, 2), (self.retry, 2), (self.pause, 1), (self.beat, 2), (self.rescue, 2),
            (self.assign, 2), (self.restart, 1), (self.fall_silent, 2),
        ]  # fmt: skip
        async with await self.storm.connect() as self.conn:
            for _ in range(STEPS):
                [step] = self.chance.choices([s for s, _ in steps], [weight for _, weight in steps])
                await step()

    async def sql(self, statement: str, *params: Any) -> list[Any]:
        """As any caller does: a deadlock rolls the statement back, and it is tried again."""
        for _ in range(9):
            with suppress(psycopg.errors.DeadlockDetected):
                return await fetch(self.conn, statement, *params)
        return await fetch(self.conn, statement, *params)

    async def enqueue(self) -> None:
        recent = self.storm.made[-12:]
        tasks = []
        for _ in range(self.chance.randint(1, 5)):
            parents = self.chance.sample(recent, min(self.chance.choice([0, 0, 1, 3]), len(recent)))
            task = {
                "id": str(uuid4()),
                "task_type": self.chance.choice(TYPES),
                "priority": self.chance.choice([1, 5, 15]),
                "tenant": self.chance.choice([None, "t1", "t2"]),
                "concurrency_key": self.chance.choice(["k1", "k2", "k3", None]),
                "dedup_key": self.chance.choice([None, None, "d1", "d2", "d3"]),
                "max_attempts": self.chance.choice([1, 3, 9]),
                "depends_on": [str(parent) for parent in parents] or None,
                "on_dependency_failure": self.chance.choice(["cancel", "fail", "run"]),
                "backoff": self.chance.choice([None, "10 milliseconds"]),
            }
            tasks.append({name: value for name, value in task.items() if value is not None})
        rows = await self.sql("SELECT id, created FROM shiftboss.enqueue(%s)", orjson.dumps(tasks).decode())
        self.storm.made += [id for id, created in rows if created]

    async def claim(self) -> None:
        lease = self.chance.choice([None, None, "10 milliseconds", "1 hour"])
        many = self.chance.randint(1, 6)
        self.take(
            await self.sql(
                "SELECT id, lease FROM shiftboss.claim(%s, %s, NULL, NULL, %s::interval)",
                self.name,
                many,
                lease,
            )
        )

    async def assign(self) -> None:
        ids = self.chance.sample(self.storm.made, min(6, len(self.storm.made)))
        self.take(await self.sql("SELECT id, lease FROM shiftboss.assign(%s, %s)", ids, self.name))

    def take(self, rows: list[Any]) -> None:
        for id, lease in rows:
            assert lease not in self.storm.issued, "a lease was given out twice"
            self.storm.issued[lease] = self.held[lease] = id

    def some_held(self) -> dict[int, UUID]:
        chosen = self.chance.sample(sorted(self.held), min(self.chance.randint(1, 3), len(self.held)))
        # one task may be held by an old lease and a new one: never both in one report
        return {lease: id for id, lease in {self.held[lease]: lease for lease in chosen}.items()}

    async def end(self) -> None:
        chosen = self.some_held()
        if not chosen:
            return
        how = self.chance.choice(["complete", "complete", *ENDS])
        call = ENDS[how][0].format(n=len(chosen))
        [(stale,)] = await self.sql(f"SELECT {call}", list(chosen.values()), list(chosen))
        for lease, id in chosen.items():
            del self.held[lease]
            self.past.append((lease, id))
            if id in stale:
                self.storm.refused.add(lease)
            else:
                self.storm.accepted[lease] = how

    async def late(self) -> None:
        """A report by a lease that has ended: whatever it says, the history must not change."""
        if self.past:
            lease, id = self.chance.choice(self.past[-6:])
            call = ENDS[self.chance.choice(list(ENDS))][0].format(n=1)
            [(stale,)] = await self.sql(f"SELECT {call}", [id], [lease])
            assert stale or lease not in self.storm.refused, "a stale lease was accepted"

    async def extend(self) -> None:
        for lease, id in self.some_held().items():
            await self.sql("SELECT shiftboss.extend(%s, %s, '1 minute')", [id], [lease])
            await self.sql(
                "SELECT shiftboss.progress(%s, %s, ARRAY[50::smallint], ARRAY['half'])", [id], [lease]
            )

    async def cancel(self) -> None:
        ids = self.chance.sample(self.storm.made, min(3, len(self.storm.made)))
        await self.sql("SELECT * FROM shiftboss.cancel(%s)", ids)

    async def retry(self) -> None:
        ids = self.chance.sample(self.storm.made, min(3, len(self.storm.made)))
        self.storm.retried |= set(ids)
        await self.sql("SELECT shiftboss.retry(%s)", ids)

    async def pause(self) -> None:
        kind = self.chance.choice(TYPES)
        await self.sql("SELECT shiftboss.pause('task_type', %s)", kind)
        await self.sql("SELECT shiftboss.resume('task_type', %s)", kind)

    async def beat(self) -> None:
        [(_, lost)] = await self.sql(
            "SELECT known, lost FROM shiftboss.beat(%s, %s)", self.name, list(self.held)
        )
        for lease in lost:
            self.past.append((lease, self.held.pop(lease)))
            self.storm.refused.add(lease)

    async def rescue(self) -> None:
        await self.sql("SELECT * FROM shiftboss.rescue()")

    async def fall_silent(self) -> None:
        """The next rescue takes away all that this one holds, and it does not know."""
        await self.sql(
            "UPDATE workers SET lease_time = '1 ms', lease_expires_at = shiftboss.now() - interval '1 s'"
            " WHERE id = %s RETURNING id",
            self.name,
        )

    async def restart(self) -> None:
        """What the former self held is lost; it reports some of it all the same, later."""
        await self.sql("SELECT shiftboss.register(%s)", self.name)
        self.past += self.held.items()
        self.storm.refused |= self.held.keys()
        self.held.clear()


async def fetch(conn: psycopg.AsyncConnection[Any], statement: str, *params: Any) -> list[Any]:
    cursor = await conn.execute(statement, params)
    return await cursor.fetchall()


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.session  # the clock is set in each
async def test_a_storm_leaves_order(database_url: str, seed: int) -> None:
    await Storm(database_url, seed).blow()
