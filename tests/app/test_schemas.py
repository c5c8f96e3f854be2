"""Argument schemas: workers publish them, and every client except plain SQL is checked against them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from shiftboss import App
from shiftboss.db import Database
from shiftboss.leader.schedules import Cron, task
from shiftboss.model.access import Principal, Role
from shiftboss.model.arguments import BadArguments, check_arguments, compiled, signature
from shiftboss.model.errors import UnknownTaskType
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.operations import Operations
from shiftboss.worker.schemas import schema_of

ME = Principal("me", Role.ADMIN)


@dataclass
class Box:
    width: int
    height: int


class Opaque:
    """Nothing that JSON knows."""


def images() -> App:
    app = App("img")

    @app.task()
    async def thumbnail(
        image_id: int,
        size: Annotated[int, Field(ge=16)] = 128,
        crop: Box | None = None,
        fit: Literal["cover", "contain"] = "cover",
        when: datetime | None = None,
    ) -> str:
        """Make a thumbnail."""
        return f"{image_id}@{size}"

    @app.task()
    async def anything(**params: Any) -> int:
        return len(params)

    @app.task()
    def odd(thing: Opaque, other: Any = Opaque()) -> None: ...  # noqa: B008

    return app


@pytest.fixture
async def published(db: Database) -> AsyncIterator[App]:
    app = images()
    async with app, app.worker():
        yield app


async def test_workers_publish_what_their_tasks_take(db: Database, published: App) -> None:
    rows = {row["task_type"]: row for row in await db.schemas.all()}
    assert set(rows) == {"img.thumbnail", "img.anything", "img.odd"}
    schema = rows["img.thumbnail"]["schema"]
    assert schema["description"] == "Make a thumbnail."
    assert schema["required"] == ["image_id"]
    assert schema["properties"]["size"]["minimum"] == 16
    assert rows["img.anything"]["schema"]["type"] == "object"
    assert signature(schema).startswith("image_id: integer, size: integer = 128, crop: object or null = null")
    everything = [schema_of(handler) for handler in published.handlers]
    assert all(compiled(schema) for schema in everything)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"image_id": "abc"}, 'image_id: "abc" does not fit, integer is expected'),
        ({}, "image_id: it is missing, integer is expected"),
        ({"image_id": 1, "sise": 3}, "sise: there is no such argument"),
        ({"image_id": 1, "size": 3}, "size: 3 is less than the minimum of 16"),
        ({"image_id": 1, "fit": "tile"}, 'fit: "tile" does not fit, "cover" or "contain" is expected'),
        ({"image_id": 1, "when": "soon"}, 'when: "soon" does not fit, date-time or null is expected'),
        ({"image_id": 1, "crop": {"width": "x", "height": 1}}, "crop: "),
    ],
)
async def test_what_does_not_fit_is_refused(
    db: Database, published: App, params: dict[str, Any], problem: str
) -> None:
    operations = Operations(db, Settings.load())
    with pytest.raises(BadArguments) as caught:
        await operations.enqueue(ME, NewTask(task_type="img.thumbnail", params=params))
    assert problem in caught.value.message
    assert "img.thumbnail takes image_id: integer" in (caught.value.hint or "")
    order = task("img.thumbnail", params)
    with pytest.raises(BadArguments):
        await operations.put_schedule(ME, Cron(name="nightly", cron="0 3 * * *", task=order))
    with pytest.raises(BadArguments):
        await published.task_named("img.thumbnail").enqueue(**params)
    with pytest.raises(BadArguments):
        await App("web").task_named("img.thumbnail").enqueue(**params)


async def test_what_fits_is_enqueued_by_name(db: Database, published: App) -> None:
    web = App("web")
    async with web:
        params = {"image_id": 7, "when": "2030-01-01T00:00:00", "crop": {"width": 1, "height": 2}}
        handle = await web.task_named("img.thumbnail").options(priority=10).enqueue(**params)
        assert await handle.result(timeout=30) == "7@128"
        assert await (await web.task_named("img.anything").enqueue(a=1, b=2)).result(timeout=30) == 2


def test_a_name_alone_is_checked_on_a_connection_of_the_caller_as_well(
    database_url: str, db: Database
) -> None:
    import psycopg

    app, web = images(), App("web")
    with app.sync.worker(), psycopg.connect(database_url) as conn:
        with pytest.raises(BadArguments):
            web.sync.enqueue(web.task_named("img.thumbnail").call(image_id="abc"), conn=conn)
        web.sync.enqueue(web.task_named("img.thumbnail").call(image_id=1), conn=conn)
    app.sync.close()
    web.sync.close()


async def test_an_unknown_type_is_a_warning_or_an_error(
    db: Database, published: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await Operations(db, Settings.load()).enqueue(ME, NewTask(task_type="img.thumbnial"))
    assert made.warning == "no worker serves the task type 'img.thumbnial': did you mean img.thumbnail?"
    with caplog.at_level(logging.WARNING):
        await App("web").task_named("later.on").enqueue()
    assert "no worker serves the task type 'later.on'" in caplog.text
    monkeypatch.setenv("SHIFTBOSS_TASKS_STRICT", "true")
    with pytest.raises(UnknownTaskType, match=r"later\.on"):
        await App("web").task_named("later.on").enqueue()
    with pytest.raises(UnknownTaskType):
        await Operations(db, Settings.load()).enqueue(ME, NewTask(task_type="img.thumbnial"))


async def test_plain_sql_is_not_checked(db: Database, published: App) -> None:
    row = await db.fetch_one(
        "INSERT INTO tasks (task_type, params) VALUES ('img.thumbnail', '{\"image_id\": \"abc\"}') RETURNING id"
    )
    assert row is not None
    outcome = await published.handle(row["id"]).wait(timeout=30)
    assert "image_id" in (outcome.error or "")


@pytest.mark.parametrize("params", ["[1, 2]", '"x"', "null"])
@pytest.mark.parametrize("name", ["img.thumbnail", "img.anything"])
async def test_plain_sql_with_params_that_are_no_object_fails_with_the_reason(
    db: Database, published: App, name: str, params: str
) -> None:
    row = await db.fetch_one(
        "INSERT INTO tasks (task_type, params) VALUES (%s, %s) RETURNING id", [name, params]
    )
    assert row is not None
    outcome = await published.handle(row["id"]).wait(timeout=30)
    assert outcome.status == "Failed"
    expected = f"params of {name} must be a JSON object, not {params.replace(' ', '')}"
    assert (outcome.error or "").startswith(expected)


async def test_a_new_version_replaces_an_old_one_and_never_the_other_way(db: Database) -> None:
    def publish(kind: str, version: str | None) -> Any:
        schema = {"type": "object", "properties": {"n": {"type": kind}}}
        return db.schemas.publish("w", [{"name": "a.b", "schema": schema, "version": version}])

    assert await publish("string", "9") == ["a.b"]
    assert await publish("string", "9") == []
    assert await publish("integer", "10") == ["a.b"]
    assert await publish("string", "9") == []
    row = await db.schemas.get("a.b")
    assert row is not None
    assert (row["version"], row["schema"]["properties"]["n"]["type"]) == ("10", "integer")
    assert await publish("boolean", None) == ["a.b"]  # without a number the last one counts


async def test_a_type_that_nobody_has_is_forgotten_after_a_month(db: Database) -> None:
    await db.schemas.publish("w", [{"name": "old.one", "schema": {"type": "object"}, "version": None}])
    await db.execute("UPDATE shiftboss.task_schemas SET seen_at = seen_at - interval '31 days'")
    await db.schemas.publish("w", [{"name": "new.one", "schema": {"type": "object"}, "version": None}])
    assert [row["task_type"] for row in await db.schemas.all()] == ["new.one"]


def test_a_schema_never_fetches_anything_and_a_broken_one_refuses_nothing() -> None:
    assert not compiled({"$ref": "http://127.0.0.1:1/schema.json"})
    assert not compiled({"type": "nonsense"})
    check_arguments("a.b", {"n": 1}, {"type": "nonsense"})
    check_arguments("a.b", {"n": 10**30}, {"type": "object", "properties": {"n": {"type": "integer"}}})


async def test_a_task_enqueued_by_name_has_the_terms_of_its_type(db: Database) -> None:
    app = App("shop")

    @app.task(queue="mail", max_attempts=1, timeout=30, requires={"gpu": True})
    async def send(to: str) -> None: ...

    await db.schemas.publish("w", app.handlers.schemas())
    operations = Operations(db, Settings.load())
    await operations.enqueue(ME, NewTask(task_type="shop.send", params={"to": "a"}))
    await operations.enqueue(
        ME, NewTask(task_type="shop.send", params={"to": "b"}, queue="q", max_attempts=5)
    )
    query = "SELECT queue, max_attempts, timeout, requires FROM tasks ORDER BY params->>'to'"
    rows = [tuple(row.values()) for row in await db.fetch(query)]
    assert rows == [
        ("mail", 1, timedelta(seconds=30), {"gpu": True}),
        ("q", 5, timedelta(seconds=30), {"gpu": True}),
    ]
    cron = Cron(name="daily", cron="0 3 * * *", task=task("shop.send", {"to": "d"}, max_attempts=2))
    row = await operations.put_schedule(ME, cron)
    assert (row["task"]["queue"], row["task"]["max_attempts"]) == ("mail", 2)
    async with App("other") as other:
        await other.task_named("shop.send").enqueue(to="c")
        row = await db.fetch_one("SELECT queue, max_attempts FROM tasks WHERE params->>'to' = 'c'")
    assert row == {"queue": "mail", "max_attempts": 1}
