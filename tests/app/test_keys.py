"""Keys of the arguments: templates apply to every client, functions only where they are imported."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from shiftboss import App, inject
from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.leader.schedules import Cron, task
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.model.terms import template_key
from shiftboss.operations import Operations

ME = Principal("me", Role.ADMIN)
app = App("keys")


class Client:
    """A resource."""


@app.resource
def client() -> Client:
    return Client()


@app.task(dedup_key="{user}:{kind}", concurrency_key="{user}", max_per_key=1, dedup_for=60)
async def sync(user: int, kind: str = "full") -> int:
    return user


@app.task(dedup_key="{page}", debounce=10, debounce_max=60)
async def render(page: str, text: str) -> None: ...


@app.task(dedup_key=lambda user: f"{user}!", concurrency_key=lambda user: "c")
async def notify(user: str, client: Client = inject) -> str:
    return user


@app.task()
async def first_user() -> int:
    return 1


async def row_of(db: Database, id: Any) -> dict[str, Any]:
    row = await db.tasks.get(id)
    assert row is not None
    return row


@pytest.fixture
async def published(db: Database) -> Operations:
    await db.schemas.publish("w", app.handlers.schemas())
    return Operations(db, Settings.load())


async def test_a_template_is_a_key_wherever_the_task_is_enqueued(db: Database, published: Operations) -> None:
    async with App("elsewhere") as elsewhere:
        known = await elsewhere.task_named("keys.sync").enqueue(user=7)
    row = await row_of(db, known.id)
    assert (row["dedup_key"], row["concurrency_key"]) == ("keys.sync:7:full", "7"), "default included"
    made = await published.enqueue(ME, NewTask(task_type="keys.sync", params={"user": 7.0, "kind": "full"}))
    assert (made.id, made.created, made.warning) == (known.id, False, None)
    await app.use(db)
    same = await sync.enqueue(7)
    assert (same.id, same.created) == (known.id, False)
    by_name = await app.task_named("keys.sync").enqueue(user=7)
    assert by_name.id == known.id
    other = await published.enqueue(ME, NewTask(task_type="keys.sync", params={"user": 7, "kind": "part"}))
    assert other.created
    own = await published.enqueue(ME, NewTask(task_type="keys.sync", params={"user": 7}, dedup_key="mine"))
    assert (await row_of(db, own.id))["dedup_key"] == "mine"


async def test_periods_apply_with_the_key(db: Database, published: Operations) -> None:
    first = await published.enqueue(ME, NewTask(task_type="keys.render", params={"page": "a", "text": "1"}))
    again = await published.enqueue(ME, NewTask(task_type="keys.render", params={"page": "a", "text": "2"}))
    assert (again.id, again.created) == (first.id, False)
    row = await row_of(db, first.id)
    assert row["params"]["text"] == "2", "debounced: the last arguments win"
    assert row["run_at"] - row["created_at"] >= timedelta(seconds=9)
    reserved = await published.enqueue(ME, NewTask(task_type="keys.sync", params={"user": 1}))
    [taken] = await db.tasks.claim("w")  # the debounced task is not due yet
    await db.tasks.complete([(taken.id, taken.lease)], [None])
    again = await published.enqueue(ME, NewTask(task_type="keys.sync", params={"user": 1}))
    assert (again.id, again.created) == (reserved.id, False), "dedup_for holds after the end"


async def test_schedules_have_the_key_of_their_present_params(db: Database, published: Operations) -> None:
    async def put(**params: Any) -> dict[str, Any]:
        before = await db.schedules.get("s")
        given = (before["task"] if before else {}) | task("keys.sync", params)
        row = await published.put_schedule(ME, Cron(name="s", cron="0 3 * * *", task=given))
        found: dict[str, Any] = row["task"]
        return found

    assert (await put(user=1))["dedup_key"] == "keys.sync:1:full"
    changed = await put(user=2)
    assert (changed["dedup_key"], changed["concurrency_key"]) == ("keys.sync:2:full", "2")
    id = await published.run_schedule(ME, "s")
    assert (await row_of(db, id))["dedup_key"] == "keys.sync:2:full"


async def test_a_function_is_a_key_only_where_it_is(
    db: Database, published: Operations, caplog: pytest.LogCaptureFixture
) -> None:
    made = await published.enqueue(ME, NewTask(task_type="keys.notify", params={"user": "a"}))
    assert made.warning is not None
    assert "no dedup_key" in made.warning
    assert "no concurrency_key" in made.warning
    await app.use(db)
    there = await app.task_named("keys.notify").enqueue(user="a")
    assert (await row_of(db, there.id))["dedup_key"] == "keys.notify:a!"
    async with App("elsewhere") as elsewhere:
        with caplog.at_level(logging.WARNING, "shiftboss"):
            await elsewhere.task_named("keys.notify").enqueue(user="b")
    assert "no dedup_key" in caplog.text
    cron = Cron(name="s", cron="0 3 * * *", task=task("keys.notify", {"user": "a"}))
    assert "no dedup_key" in (await published.put_schedule(ME, cron))["warning"]


async def test_graphs_have_keys_unless_they_need_a_result(db: Database) -> None:
    await app.use(db)
    handle = await app.enqueue(sync.call(1).after(first_user.call()))
    assert (await handle.look())["dedup_key"] == "keys.sync:1:full"
    with pytest.raises(UsageError, match=r"concurrency_key of keys\.sync needs the argument user") as caught:
        await app.enqueue(first_user.call().then(sync))
    assert "options" in (caught.value.hint or "")
    keyed = sync.options(dedup_key="own", concurrency_key="own")
    handle = await app.enqueue(first_user.call().then(keyed))
    assert (await handle.look())["dedup_key"] == "own"


async def test_a_function_that_needs_a_result_is_named(db: Database) -> None:
    other = App("other")
    await other.use(db)

    @other.task(dedup_key=lambda page: page)
    async def count(page: str) -> int:
        return len(page)

    @other.task()
    async def fetch() -> str:
        return "x"

    with pytest.raises(UsageError, match="needs the argument page, which has no value yet"):
        await other.enqueue(fetch.call().then(count))


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("{nobody}", "names nobody, which is no argument"),
        ("{user.id}", "is not a template"),
        ("{user", "is not a template"),
        (["user"], "is not a template"),
        (7, "is not a template"),
    ],
)
def test_a_key_that_is_no_template_is_refused(key: Any, wrong: str) -> None:
    other = App("other")

    async def work(user: int) -> None: ...

    with pytest.raises(UsageError, match=wrong) as caught:
        other.task(dedup_key=key)(work)
    assert "{user}" in (caught.value.hint or "")


def test_values_are_written_as_json_and_texts_as_they_are() -> None:
    given = {"text": "ä", "yes": True, "none": None, "half": 0.5, "whole": 2.0, "list": [1, "a"]}
    for name, expected in zip(given, ["ä", "true", "null", "0.5", "2", '[1,"a"]'], strict=True):
        assert template_key("t", "concurrency_key", f"<{{{name}}}>", given) == f"<{expected}>"
    assert template_key("t", "dedup_key", "same", {}) == "t:same"


def test_submit_warns_or_uses_the_code(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def publish() -> None:
        async with await Database.open(database_url) as db:
            await db.schemas.publish("w", app.handlers.schemas())

    asyncio.run(publish())
    target = f"{__name__}:app"
    assert main(["submit", "keys.notify", "user=7", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "no dedup_key" in err
    assert json.loads(out)["created"]
    assert main(["submit", "keys.notify", "user=7", "--app", target, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "no dedup_key" not in err
    first = json.loads(out)
    assert main(["submit", "keys.notify", "user=7", "--app", target, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": first["id"], "created": False}
    assert main(["submit", "keys.sync", "user=7", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["submit", "keys.sync", "user=7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": first["id"], "created": False}
