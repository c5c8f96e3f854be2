"""The autoscaler's decisions, its orders to a launcher, and its simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftboss.db import Database
from shiftboss.leader.autoscaler import (
    Autoscaler,
    QueueLoad,
    SupervisorSlots,
    configure,
    decide,
    set_autoscale,
)
from shiftboss.leader.duties import fleet_duties
from shiftboss.leader.simulation import made_load, plot, recorded_load, simulate
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import AutoscaleSettings, Settings
from shiftboss.model.task import NewTask

SETTINGS = AutoscaleSettings(
    min_workers=1,
    max_workers=10,
    target_queue_depth=10,
    scale_up_threshold=0.8,
    scale_down_threshold=0.3,
    cooldown_seconds=60,
)
LONG_AGO = 1e9


def wanted(since: float = LONG_AGO, **load: Any) -> int:
    return decide(SETTINGS, QueueLoad(**({"depth": 0, "workers": 4, "slots": 4} | load)), since).workers


def test_a_deep_queue_calls_for_as_many_as_meet_the_target() -> None:
    assert wanted(depth=60) == 6
    assert wanted(depth=1000) == 8  # twice as many at a time
    assert wanted(depth=1000, workers=8, slots=8) == 10


def test_a_busy_queue_with_depth_zero_is_not_idle() -> None:
    assert wanted(depth=0, running=4) == 4
    assert wanted(depth=0, arrivals=8, completions=8, task_seconds=0.5) == 4


def test_an_idle_fleet_shrinks_by_and_by() -> None:
    assert wanted(depth=0, workers=8, slots=8) == 6
    assert wanted(depth=0, workers=1, slots=1) == 1


def test_an_old_task_calls_for_one_more() -> None:
    assert wanted(depth=3, oldest_seconds=61, running=4) == 5
    assert wanted(depth=0, oldest_seconds=0, running=4) == 4


def test_a_growing_queue_is_met_before_it_is_deep() -> None:
    assert wanted(depth=20, arrivals=5, completions=3, running=4, task_seconds=1) > 4
    assert wanted(depth=20, arrivals=3, completions=3, running=4, task_seconds=1) == 4


def test_cooldown_holds_a_change_back_but_not_the_bounds() -> None:
    assert wanted(since=10, depth=60) == 4
    assert wanted(since=10, depth=60, workers=0, slots=0) == 1
    assert wanted(since=10, workers=12, slots=12) == 10


LOADS = st.builds(
    QueueLoad,
    depth=st.integers(0, 10**6),
    workers=st.integers(0, 50),
    oldest_seconds=st.floats(0, 1e6),
    running=st.integers(0, 1000),
    slots=st.integers(0, 1000),
    arrivals=st.floats(0, 1e5),
    completions=st.floats(0, 1e5),
    task_seconds=st.floats(0, 1e4),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LOADS, st.floats(0, 1e6))
def test_never_outside_the_bounds_and_never_hasty(load: QueueLoad, since: float) -> None:
    decision = decide(SETTINGS, load, since)
    assert 1 <= decision.workers <= 10
    assert decision.reason
    if 1 <= load.workers <= 10 and since < 60:
        assert decision.workers == load.workers


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LOADS)
def test_more_waiting_never_means_fewer_workers(load: QueueLoad) -> None:
    deeper = replace(load, depth=load.depth * 2 + 1)
    assert decide(SETTINGS, deeper, LONG_AGO).workers >= decide(SETTINGS, load, LONG_AGO).workers


async def test_orders_slots_from_the_supervisor(db: Database) -> None:
    await db.health.begin_supervisor("here", 1, {"default": 2})
    await db.tasks.enqueue([NewTask(task_type="echo") for _ in range(50)])
    slots = SupervisorSlots(db, "default")
    scaler = Autoscaler(db, SETTINGS.model_copy(update={"queue": "default"}))
    assert (await scaler()).workers == 4
    assert await slots.workers() == 4
    assert await db.health.wanted_slots("here") == {"default": 4}
    assert (await scaler(since_change=1.0)).workers == 4  # cooling down
    events = await db.events.latest(kind="autoscale.changed")
    assert [(e["details"]["before"], e["details"]["workers"]) for e in events] == [(2, 4)]


async def _autoscale_duty(db: Database) -> None:
    """As done by a leader whose own configuration says nothing, such as a plain worker."""
    [duty] = [duty for duty in fleet_duties(db, Settings()) if duty.name == "autoscale"]
    await duty.call()


async def test_stored_settings_apply_whoever_leads(db: Database) -> None:
    await db.health.begin_supervisor("here", 1, {"default": 2})
    await db.tasks.enqueue([NewTask(task_type="echo") for _ in range(50)])
    await _autoscale_duty(db)
    assert await db.health.wanted_slots("here") == {"default": 2}
    await set_autoscale(db, "default", {"enabled": True, "max_workers": 3})
    await _autoscale_duty(db)
    assert await db.health.wanted_slots("here") == {"default": 3}
    # the cooldown outlives the leader that ordered the change
    await set_autoscale(db, "default", {"max_workers": 5})
    await _autoscale_duty(db)
    assert await db.health.wanted_slots("here") == {"default": 3}
    await db.execute("UPDATE shiftboss.autoscale SET scaled_at = now() - interval '1 hour'")
    await _autoscale_duty(db)
    assert await db.health.wanted_slots("here") == {"default": 5}
    await set_autoscale(db, "default", {"enabled": False})
    await db.execute("UPDATE shiftboss.autoscale SET scaled_at = NULL")
    await _autoscale_duty(db)
    assert await db.health.wanted_slots("here") == {"default": 5}


async def test_a_queue_that_cannot_be_scaled_does_not_keep_others_from_it(db: Database) -> None:
    await db.health.begin_supervisor("here", 1, {"default": 2})
    await db.tasks.enqueue([NewTask(task_type="echo") for _ in range(50)])
    await db.execute(
        "INSERT INTO shiftboss.autoscale (queue, settings) VALUES ('a', '{\"max_workers\": -1}')"
    )
    await db.execute("UPDATE shiftboss.supervisors SET slots = slots || '{\"b\": 2000}'")
    await set_autoscale(db, "b", {"enabled": True, "min_workers": 1500, "max_workers": 1500})
    await set_autoscale(db, "default", {"enabled": True})
    await _autoscale_duty(db)
    slots = await db.health.wanted_slots("here")
    assert slots is not None
    assert slots["default"] == 4


async def test_a_configuration_is_applied_once_and_an_empty_one_changes_nothing(db: Database) -> None:
    await configure(db, AutoscaleSettings())
    assert await db.autoscale.all() == []
    file = AutoscaleSettings(enabled=True, max_workers=5)
    await configure(db, file)
    assert await db.autoscale.get("default") == {"enabled": True, "max_workers": 5}
    await set_autoscale(db, "default", {"max_workers": 7, "min_workers": 2})
    await configure(db, AutoscaleSettings())
    await configure(db, file)  # the coordinator was restarted
    assert await db.autoscale.get("default") == {"enabled": True, "max_workers": 7, "min_workers": 2}
    await configure(db, AutoscaleSettings(enabled=True, max_workers=6))  # the file was changed
    assert await db.autoscale.get("default") == {"enabled": True, "max_workers": 6, "min_workers": 2}


@pytest.mark.parametrize("bad", [{"max_workers": 0}, {"speed": 1}, {"queue": "other"}])
async def test_settings_that_make_no_sense_are_refused(db: Database, bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await set_autoscale(db, "default", bad)
    assert await db.autoscale.all() == []


async def test_none_brings_a_default_back(db: Database) -> None:
    assert (await set_autoscale(db, "default", {"max_workers": "20"})).max_workers == 20
    assert await db.autoscale.get("default") == {"max_workers": 20}
    assert (await set_autoscale(db, "default", {"max_workers": None})).max_workers == 10
    assert await db.autoscale.get("default") == {}


async def test_only_supervisors_that_live_count_and_share_the_load(db: Database) -> None:
    for host, slots in (("a", 1), ("b", 1), ("dead", 7)):
        await db.health.begin_supervisor(host, 1, {"default": slots})
    await db.execute("UPDATE shiftboss.supervisors SET last_seen = last_seen - 3600 WHERE host = 'dead'")
    slots_of_queue = SupervisorSlots(db, "default")
    assert await slots_of_queue.workers() == 2
    await slots_of_queue.scale(5)
    assert await slots_of_queue.workers() == 5
    assert await db.health.wanted_slots("a") == {"default": 3}
    assert await db.health.wanted_slots("b") == {"default": 2}
    assert await db.health.wanted_slots("dead") == {"default": 7}


async def test_one_supervisor_needs_no_name_beside_dead_ones(db: Database) -> None:
    for host in ("alive", "dead"):
        await db.health.begin_supervisor(host, 1, {})
    await db.execute("UPDATE shiftboss.supervisors SET last_seen = last_seen - 3600 WHERE host = 'dead'")
    assert await db.health.set_slots("default", 2) == "alive"


def test_a_simulated_burst_is_carried_and_the_fleet_goes_home() -> None:
    moments = simulate(SETTINGS, made_load("burst", 3600, 1.0), task_seconds=1.0, slots=1)
    burst = [m for m in moments if 1080 < m.second < 1440]
    assert max(m.workers for m in burst) >= 6
    assert moments[-1].depth == 0
    assert moments[-1].workers <= 2
    flips = sum(a.workers != b.workers for a, b in pairwise(moments))
    assert flips < 40


def test_a_picture_of_a_recorded_load(tmp_path: Path) -> None:
    record = tmp_path / "load.csv"
    record.write_text("second,arrivals\n" + "".join(f"{n},{n % 7}\n" for n in range(120)))
    arrivals = recorded_load(record)
    assert len(arrivals) == 120
    picture = tmp_path / "scale.png"
    plot(simulate(SETTINGS, arrivals, 1.0, 2), picture, SETTINGS)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bad_simulations_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pattern"):
        made_load("zigzag", 10, 1)
    with pytest.raises(UsageError, match="cannot read"):
        recorded_load(tmp_path / "none.csv")
