"""Rules that exist in both SQL and Python are compared at every bound."""

from __future__ import annotations

from bisect import bisect
from contextlib import nullcontext
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from shiftboss.db import Database
from shiftboss.db.encoding import DEFAULTS
from shiftboss.extensions.grpc.session import profile_of
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import BUCKETS, LONGEST, MAX_BYTES, RANGES, SENSIBLE, NewTask
from tests.queue.test_queue import enqueue

ABSENT = object()
REQUIRED: dict[str, list[Any]] = {
    "ai_provider": [ABSENT, "openai", "ollama", ""],
    "features": [ABSENT, [], ["voice"], ["voice", "vision"], ["voice", "voice"], ["other"], [1], [["voice"]]],
    "version": [ABSENT, {"t": ["1"]}, {"t": ["2"]}, {"u": ["1"]}],
    "gpu": [ABSENT, False, True],
    "memory_gb": [ABSENT, 0, 4, 4.5],
    "cpu_cores": [ABSENT, 0, 2, 2.25],
}
CAPABLE = [
    {"ai_providers": [], "specialized_features": []},
    {"ai_providers": ["openai"], "specialized_features": ["voice"], "versions": {"t": ["1", "3"]}},
    {
        "ai_providers": ["openai", "ollama"],
        "specialized_features": ["vision", "voice"],
        "versions": {"u": ["1"]},
    },
]
LIMITS = [
    {"cpu_cores": 1, "memory_gb": 1, "gpu_available": False},
    {"cpu_cores": 2, "memory_gb": 4, "gpu_available": True},
    {"cpu_cores": 2.5, "memory_gb": 64.5, "gpu_available": False},
]
MEETS = """
SELECT ARRAY(SELECT shiftboss.meets(r, %(can)s, %(has)s) FROM jsonb_array_elements(%(requires)s) WITH ORDINALITY e (r, n) ORDER BY n)
    AS met
"""


def requirements() -> list[dict[str, Any]]:
    return [
        {key: value for key, value in zip(REQUIRED, values, strict=True) if value is not ABSENT}
        for values in product(*REQUIRED.values())
    ]


@pytest.mark.parametrize("has", LIMITS)
@pytest.mark.parametrize("can", CAPABLE)
async def test_sql_and_the_scheduler_agree_who_meets_requirements(
    db: Database, can: dict[str, Any], has: dict[str, Any]
) -> None:
    required = requirements()
    row = await db.fetch_one(MEETS, {"can": Jsonb(can), "has": Jsonb(has), "requires": Jsonb(required)})
    assert row is not None
    plain = {"id": "w", "queues": None, "region": None, "paused": False, "draining": False}
    worker = profile_of(plain | {"capabilities": can, "resource_limits": has})
    differing = [one for one, met in zip(required, row["met"], strict=True) if worker.meets(one) is not met]
    assert differing == []
    assert {True, False} == set(row["met"])


MOMENT = timedelta(microseconds=1)
BOUNDS = [
    *((name, "ä" * (most // 2), "ä" * (most // 2) + "a") for name, most in MAX_BYTES.items()),
    *(
        (name, edge, edge + step)
        for name, (low, high) in RANGES.items()
        for edge, step in ((low, -1), (high, 1))
    ),
    ("deadline", SENSIBLE[0] + MOMENT, SENSIBLE[0]),
    ("deadline", SENSIBLE[1] - MOMENT, SENSIBLE[1]),
    ("timeout", LONGEST, LONGEST + MOMENT),
    ("backoff_max", LONGEST, LONGEST + MOMENT),
]


@pytest.mark.parametrize(
    ("name", "good", "bad"), BOUNDS, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(BOUNDS)]
)
async def test_python_and_sql_refuse_the_same_terms(db: Database, name: str, good: Any, bad: Any) -> None:
    for value, refused in ((good, False), (bad, True)):
        task = NewTask(**({"task_type": "t"} | {name: value}))
        with pytest.raises(UsageError) if refused else nullcontext():
            task.check()
        columns = {"task_type": "t"} | {name: value}
        names, places = ", ".join(columns), ", ".join(["%s"] * len(columns))
        with pytest.raises(DatabaseError) if refused else nullcontext():
            await db.execute(f"INSERT INTO tasks ({names}) VALUES ({places})", list(columns.values()))


WRONG = {
    "status": "Done",
    "queue": "",
    "priority": 101,
    "max_attempts": 0,
    "run_at": SENSIBLE[1],
    "deadline": SENSIBLE[0],
    "timeout": timedelta(),
    "backoff": -MOMENT,
    "backoff_factor": 0.5,
    "backoff_max": timedelta(),
    "on_dependency_failure": "ignore",
    "hold": "forever",
    "progress": 101,
    "dedup_key": "k" * 1001,
    "concurrency_key": "k" * 1001,
}


@pytest.mark.parametrize("column", WRONG)
async def test_plain_sql_cannot_store_an_invalid_value(db: Database, column: str) -> None:
    id = await enqueue(db)
    async with db.dedicated() as conn:
        for sql in (
            f"INSERT INTO tasks (task_type, {column}) VALUES ('t', %s)",
            f"UPDATE tasks SET {column} = %s",
        ):
            with pytest.raises(psycopg.errors.CheckViolation, match=column) as error:
                await conn.execute(sql, [WRONG[column]])
            assert error.value.diag.table_name == "tasks"
    assert [row["id"] for row in await db.fetch("SELECT id FROM tasks")] == [id]


async def test_defaults_are_those_of_the_columns(db: Database) -> None:
    row = await db.fetch_one("INSERT INTO tasks (task_type) VALUES ('t') RETURNING *")
    assert row is not None
    assert {name: row[name] for name in DEFAULTS} == DEFAULTS
    worker = await db.fetch_one("SELECT lease_time FROM shiftboss.register('w')")
    assert worker is not None
    assert worker["lease_time"] == timedelta(seconds=WorkerSettings().lease_seconds)


async def test_durations_fall_into_the_same_buckets(db: Database) -> None:
    seconds = [0.0, *BUCKETS, *(bound * 1.01 for bound in BUCKETS), 1e6]
    rows = await db.fetch(
        "SELECT shiftboss.time_bucket(s) AS bucket FROM unnest(%s::float8[]) WITH ORDINALITY u (s, n) ORDER BY n",
        [seconds],
    )
    assert [row["bucket"] for row in rows] == [bisect(BUCKETS, one) for one in seconds]
