"""Random interleavings of everything that can happen to tasks, against the real database.

Never lose a task, never hold one under two live leases, never finish by a stale lease, never exceed a limit, never
leave a task that waits without a reason.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import orjson
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

TYPES = ("a", "b")
WORKERS = ("w1", "w2", "w3")
LIVE = ("Queued", "In Progress")
LEASE = timedelta(seconds=30)

Held = tuple[UUID, int]


class Queue(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.conn = psycopg.connect(self.url, autocommit=True)
        self.clock = datetime(2030, 1, 1, tzinfo=UTC)
        self.count = 0
        self.made: list[UUID] = []
        self.final: dict[UUID, str] = {}
        self.held: dict[UUID, tuple[int, str]] = {}
        self.ended: list[Held] = []
        self.limits: dict[str, tuple[int | None, int | None]] = {}

    def sql(self, statement: str, *params: Any) -> list[Any]:
        cursor = self.conn.execute(statement, params)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []

    @initialize()
    def clean(self) -> None:
        self.sql(
            "TRUNCATE tasks, workers, shiftboss.limits, shiftboss.pauses, shiftboss.dependencies, shiftboss.past_attempts"
        )
        self.sql("SELECT setseed(0.5)")
        self.tick(0)

    def tick(self, seconds: float) -> None:
        self.clock += timedelta(seconds=seconds)
        self.sql("SELECT set_config('shiftboss.now', %s, false)", self.clock.isoformat())

    @rule(data=st.data(), count=st.integers(2, 5))
    def enqueue(self, data: st.DataObject, count: int) -> None:
        tasks = []
        soon = (self.clock + timedelta(seconds=60)).isoformat()
        for _ in range(count):
            some = (
                st.lists(st.sampled_from(self.made[-8:]), max_size=2, unique=True)
                if self.made
                else st.just([])
            )
            parents = data.draw(some)
            self.count += 1
            task = {
                "id": str(UUID(int=self.count)),  # the same at every replay
                "task_type": data.draw(st.sampled_from(("a", "a", "a", "b"))),
                "priority": data.draw(st.sampled_from([1, 5, 15])),
                "tenant": data.draw(st.sampled_from([None, "t1", "t2"])),
                "concurrency_key": data.draw(st.sampled_from(["k1", "k1", "k2", None])),
                "max_attempts": data.draw(st.sampled_from([1, 3, 9])),
                "depends_on": [str(parent) for parent in parents] or None,
                "on_dependency_failure": data.draw(st.sampled_from(["cancel", "fail", "run"])),
                "delay": data.draw(st.sampled_from([None, None, None, "5 seconds"])),
                "backoff": data.draw(st.sampled_from([None, None, "2 seconds"])),
                "deadline": data.draw(st.sampled_from([None, None, None, soon])),
            }
            tasks.append({name: value for name, value in task.items() if value is not None})
        rows = self.sql("SELECT id, created FROM shiftboss.enqueue(%s)", orjson.dumps(tasks).decode())
        self.made += [id for id, created in rows if created]

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 12))
    def claim(self, worker: str, count: int) -> None:
        rows = self.sql("SELECT id, lease FROM shiftboss.claim(%s, %s)", worker, count)
        assert len(rows) <= count
        for id, lease in rows:
            assert id not in self.held, "one task under two live leases"
            assert id not in self.final
            self.held[id] = (lease, worker)

    def draw_held(self, data: st.DataObject) -> Held:
        id = data.draw(st.sampled_from(sorted(self.held)))
        lease, _ = self.held.pop(id)
        self.ended.append((id, lease))
        return id, lease

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["complete", "fail", "crash", "defer", "release", "cancelled"]))
    def end(self, data: st.DataObject, how: str) -> None:
        id, lease = self.draw_held(data)
        calls = {
            "complete": "shiftboss.complete(%s, %s, ARRAY['1'::jsonb])",
            "fail": "shiftboss.fail(%s, %s, ARRAY['boom'])",
            "crash": "shiftboss.fail(%s, %s, ARRAY['boom'], ARRAY['crashed'])",
            "defer": "shiftboss.defer(%s, %s, ARRAY[interval '3 s'], ARRAY['later'])",
            "release": "shiftboss.defer(%s, %s, ARRAY[interval '0'], ARRAY['back'])",
            "cancelled": "shiftboss.cancelled(%s, %s)",
        }
        [(stale,)] = self.sql(f"SELECT {calls[how]}", [id], [lease])
        assert stale == [], "a live lease was called stale"

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def report_by_an_old_lease(self, data: st.DataObject) -> None:
        # the telling ones are those of tasks that somebody else holds by now
        telling = [entry for entry in self.ended if entry[0] in self.held] or self.ended
        self.late_reports(*data.draw(st.sampled_from(telling)))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), worker=st.sampled_from(WORKERS))
    def hand_over(self, data: st.DataObject, worker: str) -> None:
        """One gives up, another takes it, the first reports all the same."""
        id, lease = self.draw_held(data)
        self.sql("SELECT shiftboss.defer(%s, %s, ARRAY[interval '0'], ARRAY['back'])", [id], [lease])
        self.claim(worker, 12)
        self.late_reports(id, lease)

    def late_reports(self, id: UUID, lease: int) -> None:
        before = self.sql("SELECT t FROM tasks t WHERE id = %s", id)
        # only a report of the kind that ended the attempt may be taken for one that is repeated
        accepted = {
            {"failed": "fail", "deferred": "defer", "released": "defer"}.get(outcome, outcome)
            for (outcome,) in self.sql(
                "SELECT outcome FROM shiftboss.attempts WHERE task_id = %s AND lease = %s", id, lease
            )
        }
        for call in (
            "shiftboss.complete(%s, %s, ARRAY['2'::jsonb])",
            "shiftboss.fail(%s, %s, ARRAY['late'])",
            "shiftboss.defer(%s, %s, ARRAY[interval '3 s'], ARRAY['late'])",
            "shiftboss.cancelled(%s, %s)",
            "shiftboss.progress(%s, %s, ARRAY[50::smallint], ARRAY['x'])",
            "shiftboss.extend(%s, %s, '1 hour')",
        ):
            [(stale,)] = self.sql(f"SELECT {call}", [id], [lease])
            how = call.removeprefix("shiftboss.").partition("(")[0]
            assert stale == ([] if how in accepted else [id]), f"{call} after {sorted(accepted)}"
            assert self.sql("SELECT t FROM tasks t WHERE id = %s", id) == before, f"{call} by a stale lease"

    @rule(kind=st.sampled_from(TYPES), most=st.sampled_from([(2, None), (None, 1)]))
    def crowd(self, kind: str, most: tuple[int | None, int | None]) -> None:
        """More of one kind and key at once than its limit allows."""
        self.limit(kind, most)
        tasks = [
            {"task_type": kind, "concurrency_key": "k1", "id": str(UUID(int=self.count + n))}
            for n in range(1, 5)
        ]
        self.count += len(tasks)
        rows = self.sql("SELECT id FROM shiftboss.enqueue(%s)", orjson.dumps(tasks).decode())
        self.made += [id for (id,) in rows]
        for worker in WORKERS[:2]:
            self.claim(worker, 12)
            self.limits_hold()

    @rule(worker=st.sampled_from(WORKERS))
    def beat(self, worker: str) -> None:
        mine = [lease for lease, holder in self.held.values() if holder == worker]
        [(known, lost)] = self.sql("SELECT known, lost FROM shiftboss.beat(%s, %s::bigint[])", worker, mine)
        assert not known or lost == []

    @rule(seconds=st.sampled_from([1, 10, 40]))
    def time_passes(self, seconds: float) -> None:
        self.tick(seconds)

    @rule()
    def rescue(self) -> None:
        self.sql("UPDATE workers SET lease_time = '30 seconds' WHERE lease_time <> '30 seconds'")
        self.sql("SELECT * FROM shiftboss.rescue()")
        self.drop_lost()

    @rule(worker=st.sampled_from(WORKERS))
    def orphan(self, worker: str) -> None:
        self.sql("SELECT func_reset_orphaned_tasks(%s)", [worker])
        assert not self.sql("SELECT 1 FROM tasks WHERE worker_id = %s AND status = 'In Progress'", worker)
        self.drop_lost()

    def drop_lost(self) -> None:
        running = dict(self.sql("SELECT id, lease FROM tasks WHERE status = 'In Progress'"))
        for id, (lease, _) in list(self.held.items()):
            if running.get(id) != lease:
                del self.held[id]
                self.ended.append((id, lease))

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.made))
        [(status, cancelling)] = self.sql("SELECT status, cancelling FROM shiftboss.cancel(%s)", [id])
        assert cancelling == (status == "In Progress")
        assert status != "Queued"

    @precondition(lambda self: self.final)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.final)))
        [(again,)] = self.sql("SELECT shiftboss.retry(%s)", [id])
        assert bool(again) == (self.final[id] != "Complete")
        if again:
            del self.final[id]

    @rule(kind=st.sampled_from(TYPES))
    def pause_for_a_claim(self, kind: str) -> None:
        self.sql("SELECT shiftboss.pause('task_type', %s)", kind)
        before = self.running()
        self.claim("w1", 12)
        assert [row for row in self.running() if row[0] == kind] == [row for row in before if row[0] == kind]
        self.sql("SELECT shiftboss.resume('task_type', %s)", kind)

    @rule(
        kind=st.sampled_from(TYPES),
        limits=st.sampled_from([(None, 1), (None, 1), (2, None), (3, 1), (None, None)]),
    )
    def limit(self, kind: str, limits: tuple[int | None, int | None]) -> None:
        running, per_key = limits
        self.sql("SELECT shiftboss.set_limit('task_type', %s, %s, %s)", kind, running, per_key)
        # a lower limit does not stop what runs already
        self.limits[kind] = (running, per_key)
        self.grace = {(k, key): n for k, key, n in self.running()}

    def running(self) -> list[Any]:
        return self.sql(
            "SELECT task_type, concurrency_key, count(*) FROM tasks WHERE status = 'In Progress' GROUP BY 1, 2"
        )

    grace: dict[tuple[str, str | None], int] = {}  # noqa: RUF012 - replaced, never changed

    @invariant()
    def nothing_is_lost(self) -> None:
        rows = self.sql("SELECT id, status, lease, worker_id FROM tasks")
        assert len(rows) == len(self.made)
        leases = [lease for _, status, lease, _ in rows if status == "In Progress"]
        assert len(set(leases)) == len(leases)
        running = {id: lease for id, status, lease, _ in rows if status == "In Progress"}
        for id, (lease, _) in self.held.items():
            assert running.get(id) == lease, "a lease was lost without a word"
        for id, status, _, worker in rows:
            if status == "Queued":
                assert worker is None
            if status not in LIVE:
                assert self.final.setdefault(id, status) == status, "a finished task changed"
            else:
                assert id not in self.final

    @invariant()
    def limits_hold(self) -> None:
        totals: dict[str, int] = {}
        for kind, key, count in self.running():
            totals[kind] = totals.get(kind, 0) + count
            per_key = self.limits.get(kind, (None, None))[1]
            if per_key is not None and key is not None:
                assert count <= max(per_key, self.grace.get((kind, key), 0))
        for kind, total in totals.items():
            most = self.limits.get(kind, (None, None))[0]
            before = sum(n for (k, _), n in self.grace.items() if k == kind)
            assert most is None or total <= max(most, before)

    @rule()
    def every_wait_has_a_reason(self) -> None:
        for (reason,) in self.sql(
            "SELECT w.reason FROM tasks t, shiftboss.why(t.id) w WHERE t.status = 'Queued' LIMIT 20"
        ):
            assert reason

    def teardown(self) -> None:
        """With all hindrances gone, everything that waits can be done."""
        for kind in TYPES:
            self.sql("SELECT shiftboss.resume('task_type', %s)", kind)
            self.sql("SELECT shiftboss.set_limit('task_type', %s)", kind)
        self.sql("UPDATE tasks SET deadline = NULL")
        self.tick(3600)
        self.sql("SELECT * FROM shiftboss.rescue()")
        while rows := self.sql("SELECT id, lease FROM shiftboss.claim('last', 100)"):
            ids, leases = [row[0] for row in rows], [row[1] for row in rows]
            self.sql("SELECT shiftboss.complete(%s, %s, NULL)", ids, leases)
            self.tick(60)
        left = self.sql(
            "SELECT id, status, hold, depends_on FROM tasks WHERE status IN ('Queued', 'In Progress')"
        )
        assert not left, left
        assert not self.sql("SELECT * FROM shiftboss.dependencies")
        self.conn.close()


@pytest.mark.timeout(300)
@pytest.mark.session  # the clock is set in it
def test_random_interleavings(database_url: str) -> None:
    machine = type("TestedQueue", (Queue,), {"url": database_url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=settings.default.max_examples // 2,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
