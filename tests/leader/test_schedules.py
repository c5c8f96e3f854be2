"""When schedules fire: ticks, missed ticks, clocks that are put back and forward, and once only."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftboss.db import Database
from shiftboss.leader.schedules import Cron, due_ticks, fire_due, next_tick, register, set_paused
from shiftboss.model.errors import UsageError
from tests.conftest import admin

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TASK = {"task_type": "report", "params": {"kind": "daily"}, "queue": "slow"}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def ticks_between(cron: str, zone: str, start: str, end: str) -> list[datetime]:
    found, moment = [], at(start)
    while (moment := next_tick(cron, zone, moment)) <= at(end):
        found.append(moment)
    return found


def test_a_skipped_hour_fires_once_after_the_gap() -> None:
    # Berlin, 29 March 2026: 02:00 becomes 03:00
    found = ticks_between("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+00:00", "2026-03-30T12:00+00:00")
    assert found == [at("2026-03-29T03:00+02:00"), at("2026-03-30T02:30+02:00")]


def test_a_doubled_hour_fires_once_at_a_fixed_time_and_on_by_real_time_else() -> None:
    # Berlin, 25 October 2026: 03:00 becomes 02:00
    fixed = ticks_between("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+00:00", "2026-10-25T12:00+00:00")
    assert fixed == [at("2026-10-25T02:30+02:00")]
    often = ticks_between("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:59+00:00", "2026-10-25T02:00+00:00")
    assert [b - a for a, b in pairwise(often)] == [timedelta(minutes=30)] * 4


@pytest.mark.parametrize(
    ("missed", "late", "expected"),
    [
        ("latest", 0, [0]),
        ("latest", 30, [0]),
        ("latest", 600, [600]),
        ("all", 600, [0, 300, 600]),
        ("skip", 600, [600]),
        ("skip", 700, []),
        ("latest", 700, [600]),
    ],
)
def test_missed_ticks(missed: Any, late: int, expected: list[int]) -> None:
    ticks, following = due_ticks("*/5 * * * *", "UTC", T0, T0 + timedelta(seconds=late), missed)
    assert ticks == [T0 + timedelta(seconds=offset) for offset in expected]
    assert following > T0 + timedelta(seconds=late)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 10**7),
    st.sampled_from(["* * * * *", "7 */3 * * *", "0 0 1 * *"]),
    st.sampled_from(["latest", "all"]),
)
def test_whatever_the_delay_the_last_passed_tick_fires(late: int, cron: str, missed: Any) -> None:
    since = next_tick(cron, "America/New_York", T0)
    now = since + timedelta(seconds=late)
    ticks, following = due_ticks(cron, "America/New_York", since, now, missed)
    assert ticks
    assert ticks == sorted(set(ticks))
    assert since <= ticks[0]
    assert ticks[-1] <= now < following
    assert next_tick(cron, "America/New_York", ticks[-1]) == following


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cron": "61 * * * *"}, "cron expression"),
        ({"cron": ""}, "cron expression"),
        ({"cron": "0 0 31 2 *"}, "day-of-month"),
        ({"timezone": "Mars/Olympus"}, "no time zone"),
        ({"timezone": "../../etc/passwd"}, "no time zone"),
        ({"name": ""}, "name"),
        ({"task": {}}, "task_type"),
        ({"missed": "maybe"}, "missed"),
    ],
)
def test_what_would_never_fire_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Cron(**({"name": "n", "cron": "* * * * *", "task": TASK} | fields)).check()


async def move_clock(db: Database, moment: datetime) -> None:
    """For every connection that is opened from now on, and those of the pool."""
    name = (await db.fetch("SELECT current_database() AS name"))[0]["name"]
    admin(db.url, f"ALTER DATABASE {name} SET shiftboss.now = '{moment.isoformat()}'")


async def test_each_tick_fires_once_whoever_and_however_often(db: Database, database_url: str) -> None:
    await register(db, [Cron(name="daily", cron="0 12 * * *", task=TASK)])
    row = await db.schedules.get("daily")
    assert row
    await move_clock(db, row["next_tick"] + timedelta(seconds=2))
    others = [await Database.open(database_url) for _ in range(3)]
    made = await asyncio.gather(*(fire_due(other) for other in others for _ in range(3)))
    ids = [id for some in made for id in some]
    assert len(ids) == 1
    task = await db.tasks.get(ids[0])
    assert task
    assert (task["task_type"], task["queue"], task["params"]) == ("report", "slow", {"kind": "daily"})
    assert task["metadata"]["schedule"] == "daily"
    after = await db.schedules.get("daily")
    assert after
    assert (after["last_tick"], after["last_task_id"]) == (row["next_tick"], ids[0])
    assert after["next_tick"] == row["next_tick"] + timedelta(days=1)
    for other in others:
        await other.close()


@pytest.mark.session  # a pooler keeps sessions with the old clock
async def test_a_paused_schedule_does_not_fire_nor_make_up(db: Database, database_url: str) -> None:
    await register(db, [Cron(name="often", cron="* * * * *", task=TASK)])
    await set_paused(db, "often", True)
    await move_clock(db, datetime.now(UTC) + timedelta(days=1))
    async with await Database.open(database_url) as later:
        assert await fire_due(later) == []
        await set_paused(later, "often", False)
        assert await fire_due(later) == []
        row = await later.schedules.get("often")
        assert row
        assert row["next_tick"] > datetime.now(UTC) + timedelta(hours=23)


async def test_registering_again_keeps_the_next_tick_unless_the_time_changed(db: Database) -> None:
    await register(db, [Cron(name="n", cron="0 12 * * *", task=TASK)])
    await db.execute("UPDATE shiftboss.schedules SET next_tick = now() - interval '1 hour'")
    await register(db, [Cron(name="n", cron="0 12 * * *", task=TASK | {"queue": "other"})])
    row = await db.schedules.get("n")
    assert row
    assert row["task"]["queue"] == "other"
    assert row["next_tick"] < datetime.now(UTC)
    await register(db, [Cron(name="n", cron="0 13 * * *", task=TASK)])
    row = await db.schedules.get("n")
    assert row
    assert row["next_tick"] > datetime.now(UTC)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": {"task_type": "report", "depends_on": ["00000000-0000-0000-0000-000000000000"]}}, "depend"),
        ({"cron": "not a cron"}, "cron"),
        ({"timezone": "Atlantis/Capital"}, "time zone"),
        ({"task": {"task_type": "report", "params": {"n": "1e400"}}}, ""),
    ],
)
async def test_a_schedule_that_can_not_fire_holds_up_no_other(
    db: Database, change: dict[str, Any], words: str
) -> None:
    await register(db, [Cron(name=name, cron="* * * * *", task=TASK) for name in ("bad", "good")])
    for column, value in change.items():
        text = orjson.dumps(value).decode() if isinstance(value, dict) else value
        sql = f"UPDATE shiftboss.schedules SET {column} = %s WHERE name = 'bad'"
        await db.execute(sql, [text.replace('"1e400"', "1e400")])
    await db.execute("UPDATE shiftboss.schedules SET next_tick = now() - interval '2 minutes'")
    await db.execute("UPDATE shiftboss.schedules SET next_tick = now() - interval '1 day' WHERE name = 'bad'")
    await fire_due(db)
    row = await db.fetch_one("SELECT last_task_id FROM shiftboss.schedules WHERE name = 'good'")
    assert row
    assert row["last_task_id"] is not None
    # and the bad one does not come up again at once, but tells
    assert [due["name"] for due in await db.schedules.due()] == []
    if words:
        (event,) = await db.events.latest(kind="schedule.refused")
        assert event["details"]["schedule"] == "bad"
        assert words in event["details"]["reason"]
