"""Limits in code: workers store them, those of an operator override them, and `why` prints a working command."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

import pytest

from shiftboss import App
from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.model.errors import UsageError


def make(**terms: Any) -> App:
    app = App("io")

    @app.task(**terms)
    async def fetch(host: str = "") -> None: ...

    return app


async def bring(db: Database, app: App) -> None:
    """What a worker does when it starts."""
    await app.use(db)
    async with app.worker(queues=["none"]):
        pass


async def limit(db: Database) -> dict[str, Any] | None:
    sql = "SELECT max_running, max_per_key, rate, rate_period, set_by FROM shiftboss.limits"
    return await db.fetch_one(sql)


async def test_workers_bring_the_limits_in_code_and_take_them_away(db: Database) -> None:
    await bring(db, make(max_running=3, rate=10, rate_period=2))
    row = await limit(db)
    assert row is not None
    assert (row["max_running"], row["rate"], row["rate_period"].total_seconds()) == (3, 10, 2)
    assert row["set_by"] == "code"
    await bring(db, make(max_running=4))
    row = await limit(db)
    assert row is not None
    assert (row["max_running"], row["rate"], row["rate_period"]) == (4, None, None)
    await bring(db, make())
    assert await limit(db) is None


async def test_an_unchanged_limit_keeps_its_tokens(db: Database) -> None:
    await bring(db, make(rate=10))
    await db.execute("UPDATE shiftboss.limits SET tokens = 4, refilled_at = now()")
    await bring(db, make(rate=10))
    row = await db.fetch_one("SELECT tokens FROM shiftboss.limits")
    assert row == {"tokens": 4}


async def test_what_an_operator_set_wins_until_it_is_reset(db: Database) -> None:
    await bring(db, make(max_running=3))
    await db.tasks.set_limit("task_type", "io.fetch", max_running=50)
    await bring(db, make(max_running=5))
    row = await limit(db)
    assert row is not None
    assert (row["max_running"], row["set_by"]) == (50, "operator")
    [shown] = await db.insights.fleet.types()
    assert (shown["limits_set_by"], shown["limits_in_code"]) == ("operator", {"max_running": 5})
    await db.tasks.set_limit("task_type", "io.fetch")
    await bring(db, make(max_running=6))
    row = await limit(db)
    assert row is not None
    assert (row["max_running"], row["set_by"]) == (None, "operator"), "taken away by hand, and it stays so"
    assert await db.tasks.reset_limit("task_type", "io.fetch")
    row = await limit(db)
    assert row is not None
    assert (row["max_running"], row["set_by"]) == (6, "code")
    assert not await db.tasks.reset_limit("task_type", "io.fetch")


async def test_an_operators_limit_outlives_the_one_in_code(db: Database) -> None:
    await bring(db, make(max_running=3))
    await db.tasks.set_limit("task_type", "io.fetch", max_running=50)
    await bring(db, make())
    row = await limit(db)
    assert row is not None
    assert (row["max_running"], row["set_by"]) == (50, "operator")
    await db.tasks.set_limit("task_type", "io.fetch")
    assert await limit(db) is None


async def test_limits_in_code_hold(db: Database) -> None:
    app = make(max_per_key=1, concurrency_key=lambda host: host)
    await bring(db, app)
    fetch = app.task_named("io.fetch")
    for host in ("a", "a", "b"):
        await fetch.enqueue(host)
    claimed = await db.tasks.claim("w", limit=3)
    assert sorted(task.params["host"] for task in claimed) == ["a", "b"]


@pytest.mark.parametrize(
    ("terms", "wrong"),
    [
        ({"rate": 0}, "rate must be a whole number of at least 1"),
        ({"max_running": "3"}, "max_running must be a whole number"),
        ({"rate_period": 60}, "rate_period must be positive, and needs rate"),
        ({"max_per_key": 1}, "max_per_key needs a concurrency_key"),
    ],
    ids=range(4),
)
def test_limits_that_make_no_sense_are_refused(terms: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        make(**terms)


@pytest.mark.parametrize(
    "figures", [{"max_running": 1}, {"rate": 1}, {"max_per_key": 1, "rate": 9}, {"max_running": 1, "rate": 5}],
    ids=range(4),
)  # fmt: skip
@pytest.mark.parametrize("name", ["queue", "task_type"])
async def test_the_advice_of_why_helps_as_printed(db: Database, name: str, figures: dict[str, Any]) -> None:
    if name == "queue" and "max_per_key" in figures:
        figures = {"max_running": 1, "rate": 9}
    app = App("io x")
    await app.use(db)

    @app.task(queue="io q", concurrency_key=lambda: "k")
    async def fetch() -> None: ...

    await db.tasks.set_limit(name, {"queue": "io q"}.get(name, fetch.name), **figures)
    await fetch.enqueue()
    handle = await fetch.enqueue()
    assert len(await db.tasks.claim("w", limit=2)) == 1
    [reason] = [one for one in await handle.why() if one.reason == "limit reached"]
    command = shlex.split(reason.advice.partition("shiftboss ")[2])
    assert await asyncio.to_thread(main, command) == 0, command
    assert len(await db.tasks.claim("w", limit=2)) == 1, command
    row = await limit(db)
    assert row is not None
    assert {key for key, value in row.items() if value is not None} >= figures.keys(), "the others are kept"


async def test_the_command_shows_whose_limits_they_are_and_resets_them(
    db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    await bring(db, make(max_running=3))
    options: list[tuple[list[str], str]] = [
        ([], "io.fetch: 3 running at a time (in code)"),
        (["--running", "9"], "io.fetch limited"),
        ([], "io.fetch: 9 running at a time (set by hand, overriding limits in code)"),
        (["--none"], "io.fetch no longer limited"),
        ([], "io.fetch: no limits (set by hand, overriding limits in code)"),
        (["--reset"], "io.fetch reset: limits in code apply"),
        (["--reset"], "io.fetch had no limits set by hand"),
        ([], "io.fetch: 3 running at a time (in code)"),
    ]
    for given, said in options:
        command = ["queues", "limit", "--type", "io.fetch", *given]
        assert await asyncio.to_thread(main, command) == 0
        assert capsys.readouterr().out.strip() == said
