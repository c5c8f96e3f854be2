"""The scheduler's promises, on any snapshot, and its speed."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftboss.extensions.grpc.pool import Candidate
from shiftboss.extensions.grpc.scheduler import Assignments, FleetSnapshot, FlowState, Lane, schedule

# a loaded machine is no failure
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TYPES = ["parse", "embed", "render"]
QUEUES = ["default", "slow"]
REGIONS = [None, "eu", "us"]
_ids = iter(range(1, 10**9))


def lane(count: int = 1, **fields: Any) -> Lane:
    ids = [UUID(int=next(_ids)) for _ in range(count)]
    plain: dict[str, Any] = {
        "lane": next(_ids),
        "queue": "default",
        "task_type": "parse",
        "priority": 5,
        "tenant": None,
        "weight": 1.0,
        "requires": None,
        "ids": ids,
        "regions": [None] * count,
    }
    return Lane(**(plain | fields))


@st.composite
def workers(draw: st.DrawFn) -> list[Candidate]:
    found = []
    for n in range(draw(st.integers(0, 8))):
        slots = draw(st.integers(1, 5))
        found.append(
            Candidate(
                id=f"w{n}",
                slots=slots,
                free=draw(st.integers(0, slots)),
                queues=draw(st.sampled_from([None, frozenset({"default"}), frozenset(QUEUES)])),
                task_types=draw(st.none() | st.frozensets(st.sampled_from(TYPES), min_size=1)),
                ai_providers=draw(st.frozensets(st.sampled_from(["openai", "ollama"]))),
                features=draw(st.frozensets(st.sampled_from(["voice", "ocr"]))),
                gpu=draw(st.booleans()),
                memory_gb=draw(st.sampled_from([1.0, 8.0, 64.0])),
                speed=draw(st.sampled_from(["fast", "standard", "thorough"])),
                region=draw(st.sampled_from(REGIONS)),
                health=draw(st.sampled_from(["healthy", "healthy", "degraded", "unhealthy"])),
                open=draw(st.sampled_from([True, True, False])),
            )
        )
    return found


@st.composite
def lanes(draw: st.DrawFn) -> list[Lane]:
    requires = [None, {"gpu": True}, {"ai_provider": "openai"}, {"features": ["voice"]}, {"memory_gb": 16}]
    found = []
    for _ in range(draw(st.integers(0, 8))):
        count = draw(st.integers(1, 6))
        found.append(
            lane(
                count,
                queue=draw(st.sampled_from(QUEUES)),
                task_type=draw(st.sampled_from(TYPES)),
                priority=draw(st.sampled_from([1, 5, 10, 15])),
                tenant=draw(st.sampled_from([None, "a", "b"])),
                weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
                requires=draw(st.sampled_from(requires)),
                regions=draw(st.lists(st.sampled_from(REGIONS), min_size=count, max_size=count)),
            )
        )
    return found


def can(worker: Candidate, lane: Lane) -> bool:
    """The rule, said once more and differently."""
    return (
        (worker.queues is None or lane.queue in worker.queues)
        and (worker.task_types is None or lane.task_type in worker.task_types)
        and worker.meets(lane.requires)
    )


def usable(worker: Candidate) -> bool:
    return worker.open and worker.health != "unhealthy"


@UNHURRIED
@given(workers(), lanes())
def test_promises(team: list[Candidate], waiting: list[Lane]) -> None:
    plan = schedule(FleetSnapshot(team, waiting))
    by_id = {worker.id: worker for worker in team}
    lane_of = {id: one for one in waiting for id in one.ids}
    given_out = Counter(one.worker for one in plan.assignments)

    assert len({one.task for one in plan.assignments}) == len(plan.assignments)
    for task, worker_id in plan.assignments:
        assert can(by_id[worker_id], lane_of[task])
        assert usable(by_id[worker_id])
    for worker_id, count in given_out.items():
        assert count <= by_id[worker_id].free
    for one in waiting:
        taken = [task for task, _ in plan.assignments if lane_of[task] is one]
        assert taken == list(one.ids[: len(taken)])  # first come, first served
        left = len(one.ids) - len(taken)
        able = [worker for worker in team if can(worker, one)]
        spare = [w for w in able if usable(w) and w.free > given_out[w.id]]
        assert not (left and spare)  # nobody idles beside work that he could do
        assert (one.lane in plan.reasons) == bool(left)
        if left:
            expected = "busy" if any(map(usable, able)) else "paused" if able else "no capable worker"
            assert plan.reasons[one.lane].reason == expected
            lower = [by_id[w] for task, w in plan.assignments if lane_of[task].priority < one.priority]
            assert not any(can(worker, one) for worker in lower)


@UNHURRIED
@given(workers(), lanes())
def test_the_same_snapshot_gives_the_same_plan(team: list[Candidate], waiting: list[Lane]) -> None:
    assert schedule(FleetSnapshot(team, waiting)) == schedule(FleetSnapshot(team, waiting))


def team(count: int, **fields: Any) -> list[Candidate]:
    return [Candidate(**({"id": f"w{n}", "slots": 10, "free": 10} | fields)) for n in range(count)]


def counts(plan: Assignments) -> Counter[str]:
    return Counter(one.worker for one in plan.assignments)


def test_least_load_comes_first() -> None:
    busy, idle = Candidate("busy", slots=10, free=2), Candidate("idle", slots=10, free=9)
    plan = schedule(FleetSnapshot([busy, idle], [lane(7)]))
    assert counts(plan) == {"idle": 7}


def test_tasks_to_keep_ready_come_after_everybodys_slots() -> None:
    eager = Candidate("eager", slots=2, free=12, ahead=10)
    idle = Candidate("idle", slots=4, free=4)
    plan = schedule(FleetSnapshot([eager, idle], [lane(6)]))
    assert counts(plan) == {"eager": 2, "idle": 4}
    plan = schedule(FleetSnapshot([eager, idle], [lane(20)]))
    assert counts(plan) == {"eager": 12, "idle": 4}


def test_equals_take_turns_over_many_passes() -> None:
    equals, total, turn, turns = team(4), Counter[str](), 0, dict[str, int]()
    for _ in range(12):
        for worker in equals:
            worker.turn = turns.get(worker.id, 0)
        plan = schedule(FleetSnapshot(equals, [lane(1)], turn))
        turn = plan.turn
        turns |= plan.turns
        total += counts(plan)
    assert set(total.values()) == {3}


def test_high_priority_goes_to_fast_workers_and_normal_to_the_least_loaded() -> None:
    fast = Candidate("fast", slots=10, free=4, speed="fast")
    slow = Candidate("slow", slots=10, free=10, speed="thorough")
    assert counts(schedule(FleetSnapshot([slow, fast], [lane(3, priority=10)]))) == {"fast": 3}
    assert counts(schedule(FleetSnapshot([slow, fast], [lane(3, priority=5)]))) == {"slow": 3}


def test_same_region_first_and_elsewhere_when_it_is_full() -> None:
    here, there = Candidate("here", slots=2, free=2, region="eu"), Candidate("there", slots=9, free=9)
    plan = schedule(FleetSnapshot([there, here], [lane(3, regions=["eu"] * 3)]))
    assert counts(plan) == {"here": 2, "there": 1}


def test_degraded_workers_come_last() -> None:
    ill = Candidate("ill", slots=9, free=9, health="degraded")
    well = Candidate("well", slots=9, free=1)
    assert counts(schedule(FleetSnapshot([ill, well], [lane(2)]))) == {"well": 1, "ill": 1}


def test_specialists_stay_free_for_special_work() -> None:
    special = Candidate("special", slots=1, free=1, features=frozenset({"voice"}))
    plain = Candidate("plain", slots=1, free=1)
    common, voice = lane(1, task_type="a"), lane(1, task_type="b", requires={"features": ["voice"]})
    plan = schedule(FleetSnapshot([special, plain], [common, voice]))
    assert dict(plan.assignments) == {common.ids[0]: "plain", voice.ids[0]: "special"}


def served(flows: dict[str, float], passes: int, slots: int, key: str) -> Counter[str]:
    """Who was served how often when everybody always wants more."""
    total, fairness = Counter[str](), FlowState()
    for _ in range(passes):
        waiting = [lane(slots, weight=weight, **{key: name}) for name, weight in flows.items()]
        plan = schedule(FleetSnapshot(team(1, slots=slots, free=slots), waiting, fairness=fairness))
        fairness = plan.fairness
        names = {id: getattr(one, key) for one in waiting for id in one.ids}
        total += Counter(names[one.task] for one in plan.assignments)
    return total


def test_tenants_share_by_weight_over_many_passes() -> None:
    total = served({"small": 1.0, "big": 3.0}, passes=400, slots=1, key="tenant")
    assert abs(total["small"] - 100) <= 2
    assert abs(total["big"] - 300) <= 2


def test_queues_share_evenly_however_small_a_pass() -> None:
    total = served({"batch": 1.0, "mail": 1.0, "other": 1.0}, passes=100, slots=3, key="queue")
    assert set(total.values()) == {100}


def test_who_was_away_comes_back_without_credit() -> None:
    fairness = FlowState()
    for _ in range(500):
        plan = schedule(FleetSnapshot(team(1, slots=1, free=1), [lane(1, tenant="busy")], fairness=fairness))
        fairness = plan.fairness
    back = served_after(fairness)
    assert 4 <= back["away"] <= 6


def served_after(fairness: FlowState) -> Counter[str]:
    waiting = [lane(10, tenant="busy"), lane(10, tenant="away")]
    plan = schedule(FleetSnapshot(team(1), waiting, fairness=fairness))
    names = {id: one.tenant or "" for one in waiting for id in one.ids}
    return Counter(names[one.task] for one in plan.assignments)


def test_a_big_batch_does_not_starve_a_small_tenant() -> None:
    small = lane(3, tenant="small")
    plan = schedule(FleetSnapshot(team(1), [lane(10_000, tenant="batch"), small]))
    assert set(small.ids) <= {one.task for one in plan.assignments[:7]}


def big_snapshot() -> FleetSnapshot:
    dice = random.Random(1)
    types = [f"t{n}" for n in range(20)]
    crew = [
        Candidate(
            f"w{n}",
            slots=10,
            free=10,
            task_types=frozenset(dice.sample(types, 5)),
            speed=dice.choice(["fast", "standard", "thorough"]),
            region=dice.choice(REGIONS),
            memory_gb=dice.choice([4, 8, 16]),
            gpu=dice.random() < 0.1,
        )
        for n in range(1000)
    ]
    waiting = [
        lane(
            50,
            task_type=dice.choice(types),
            priority=dice.choice([1, 5, 10, 15]),
            tenant=dice.choice([None, "a", "b", "c"]),
            requires=dice.choice([None, {"gpu": True}, {"memory_gb": 8}]),
            regions=[dice.choice(REGIONS)] * 50,
        )
        for _ in range(200)
    ]
    return FleetSnapshot(crew, waiting)


@pytest.mark.serial
def test_a_thousand_workers_and_ten_thousand_tasks_take_a_moment() -> None:
    snapshot = big_snapshot()

    def seconds() -> float:
        began = time.process_time()
        schedule(snapshot)
        return time.process_time() - began

    assert min(seconds() for _ in range(5)) < 0.25  # under 0.1 s on a quiet machine: see bench/coordinator.py
