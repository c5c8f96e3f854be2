"""Deduplication in code: by a key of the arguments, for a period, and debounced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from shiftboss import App
from shiftboss.db import Database
from shiftboss.kit import Kit
from shiftboss.model.errors import UsageError

app = App("mail")
ran: list[str] = []


@app.task(dedup_key=lambda user, text: f"{user}")
async def notify(user: int, text: str = "hello") -> None:
    ran.append(text)


@app.task(dedup_key=lambda user, fail: str(user), dedup_for=3600, max_attempts=1)
async def digest(user: int, fail: bool = False) -> None:
    if fail:
        raise RuntimeError("no")


@app.task(dedup_key=lambda page, text: page, debounce=10, debounce_max=25)
async def render(page: str, text: str) -> None:
    ran.append(text)


@pytest.fixture
async def kit(database_url: str) -> AsyncIterator[Kit]:
    ran.clear()
    async with Kit.open(app, database_url) as kit:
        await kit.freeze()
        yield kit


async def test_the_key_is_a_function_of_the_arguments(kit: Kit) -> None:
    first, same, other = await notify.enqueue(1), await notify.enqueue(1, "again"), await notify.enqueue(2)
    assert (same.id, same.created) == (first.id, False)
    assert other.id != first.id
    assert (await first.look())["dedup_key"] == "mail.notify:1", "keys of other task types do not meet it"
    assert len(await kit.drain()) == 2
    assert (await notify.enqueue(1)).created, "while it is live, no longer"


async def test_a_key_is_taken_for_a_period(kit: Kit) -> None:
    first = await digest.enqueue(1)
    await kit.drain()
    again = await digest.enqueue(1)
    assert (again.id, again.created) == (first.id, False)
    assert (await digest.enqueue(2)).created
    await kit.move(hours=1)
    assert (await digest.enqueue(1)).created


async def test_a_failed_task_frees_its_key(kit: Kit) -> None:
    await digest.enqueue(1, fail=True)
    await kit.drain()
    assert (await digest.enqueue(1)).created


async def test_a_live_task_keeps_the_key_beyond_the_period(kit: Kit) -> None:
    first = await digest.options(delay=86400).enqueue(1)
    await kit.move(hours=2)
    again = await digest.enqueue(1)
    assert (again.id, again.created) == (first.id, False)


async def test_many_of_one_statement(kit: Kit) -> None:
    group = await digest.map([1, 2, 1])
    assert [handle.created for handle in group] == [True, True, False]
    assert group.handles[0].id == group.handles[2].id


async def test_debounce_keeps_the_newest_and_a_latest_start(kit: Kit) -> None:
    first = await render.enqueue("home", "one")
    for text in ("two", "three"):
        await kit.move(seconds=8)
        again = await render.enqueue("home", text)
        assert (again.id, again.created) == (first.id, False)
        assert await kit.drain() == []
    row = await first.look()
    assert timedelta(seconds=24) < row["run_at"] - row["created_at"] <= timedelta(seconds=25)
    await kit.move(seconds=10)
    assert len(await kit.drain()) == 1
    assert ran == ["three"]
    assert (await render.enqueue("home", "four")).created


async def test_a_running_task_is_followed_by_the_newest(kit: Kit) -> None:
    await render.enqueue("home", "one")
    await kit.move(seconds=11)
    [running] = await kit.db.tasks.claim("w")
    newer = await render.enqueue("home", "two")
    newest = await render.enqueue("home", "three")
    assert newer.created
    assert (newest.id, newest.created) == (newer.id, False)
    await kit.db.tasks.fail([(running.id, running.lease)], ["boom"])
    row = await kit.db.tasks.get(running.id)
    assert row is not None
    assert row["status"] == "Failed", "its arguments are old: the newer task follows"
    await kit.move(seconds=11)
    await kit.drain()
    assert ran == ["three"]


async def test_of_many_at_once_one_is_made(db: Database) -> None:
    await app.use(db)
    made = await asyncio.gather(*(render.enqueue("home", str(n)) for n in range(20)))
    assert len({handle.id for handle in made}) == 1
    assert sum(handle.created for handle in made) == 1
    periods = await asyncio.gather(*(digest.enqueue(1) for _ in range(20)))
    assert len({handle.id for handle in periods}) == 1


@pytest.mark.parametrize(
    ("terms", "wrong"),
    [
        ({"dedup_for": 5}, "dedup_for needs a dedup_key"),
        ({"dedup_key": "k", "debounce": 0}, "debounce must be greater than zero"),
        ({"dedup_key": "k", "debounce": 1, "dedup_for": 1}, "not both"),
        ({"dedup_key": "k", "debounce_max": 1}, "debounce_max needs debounce"),
    ],
    ids=range(4),
)
async def test_terms_that_contradict_are_refused(kit: Kit, terms: dict[str, Any], wrong: str) -> None:
    other = App("other")
    await other.use(kit.db)

    @other.task()
    async def work() -> None: ...

    with pytest.raises(UsageError, match=wrong):
        await work.options(**terms).enqueue()


async def test_a_key_function_that_fails_is_named(kit: Kit) -> None:
    other = App("other")
    await other.use(kit.db)

    @other.task(dedup_key=lambda wrong: wrong)
    async def work(right: int) -> None: ...

    with pytest.raises(UsageError, match=r"the dedup_key of other\.work failed"):
        await work.enqueue(1)


async def test_expired_keys_are_tidied_away(kit: Kit) -> None:
    await digest.enqueue(1)
    await kit.move(hours=2)
    await kit.db.tasks.tidy(timedelta(days=7))
    assert await kit.db.fetch("SELECT FROM shiftboss.unique_keys") == []
