from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from shiftboss import App, Context, Defer, chain, group
from shiftboss.app import parents
from shiftboss.model.arguments import BadArguments
from shiftboss.model.errors import (
    NotFound,
    ResultInvalid,
    ResultTimeout,
    TaskCancelled,
    TaskFailed,
    UsageError,
)
from shiftboss.model.task import Status
from shiftboss.worker.handlers import Handlers
from tests.conftest import outage
from tests.logs import capture_logs

app = App("test")


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


class Order(BaseModel):
    id: UUID
    due: datetime
    colour: Colour = Colour.RED


@app.task(queue="sums", max_attempts=1)
async def add(a: int, b: int = 10) -> int:
    return a + b


@app.task()
def plain(ctx: Context, name: str) -> str:
    ctx.progress(50, "half way")
    return f"{name} {ctx.attempt}"


@app.task()
async def delay(order: Order, by: timedelta, at: Point | None = None) -> Order:
    return order.model_copy(update={"due": order.due + by})


@app.task(max_attempts=1)
async def broken(text: str) -> None:
    raise ValueError(text)


@app.task()
async def total(ctx: Context) -> int:
    return sum(await parents(ctx))


@app.task()
async def anything(**named: object) -> int:
    return len(named)


@app.task()
async def liar() -> int:
    return "not a number"  # type: ignore[return-value]


begun, go_on = asyncio.Event(), asyncio.Event()


@app.task()
async def gated() -> str:
    begun.set()
    await go_on.wait()
    return "after all"


@app.task("other.name")
async def renamed() -> None: ...


@pytest.fixture
async def opened() -> AsyncIterator[App]:
    async with app:
        yield app


async def test_from_import_to_result(opened: App) -> None:
    async with app.worker():
        handle = await add.enqueue(1, b=2)
        assert await handle.result(timeout=20) == 3
        assert await handle.status() == Status.COMPLETE
        row = await handle.look()
    assert (row["task_type"], row["queue"], row["max_attempts"]) == ("test.add", "sums", 1)


async def test_a_direct_call_runs_here_and_now() -> None:
    assert await add(1) == 11
    assert plain("Ann") == "Ann 1"


async def test_typed_arguments_and_results_survive_the_database(opened: App) -> None:
    order = Order(id=uuid4(), due=datetime.now(UTC))
    async with app.worker():
        handle = await delay.enqueue(order, timedelta(days=1), at=Point(1, 2))
        assert await handle.result(timeout=20) == order.model_copy(
            update={"due": order.due + timedelta(days=1)}
        )


@pytest.mark.parametrize(
    ("args", "word"),
    [((), "missing a required argument"), (("x",), "not valid: a"), ((1, 2, 3), "too many positional")],
)
async def test_wrong_arguments_are_refused_before_anything_is_stored(
    opened: App, args: tuple[object, ...], word: str
) -> None:
    with pytest.raises(BadArguments, match=word):
        await add.enqueue(*args)  # type: ignore[arg-type]
    assert (await (await app.database()).insights.overview.counts(fresh=True))["queued_tasks"] == 0


async def test_a_failure_is_raised_where_it_is_awaited(opened: App) -> None:
    async with app.worker():
        handle = await broken.enqueue("no luck")
        with pytest.raises(TaskFailed, match="no luck") as caught:
            await handle.result(timeout=20)
    assert caught.value.id == handle.id
    error = caught.value.error or ""
    assert "Traceback" in error
    assert "in broken" in error
    assert "shiftboss/worker" not in error, "the traceback starts at the handler"


async def test_a_result_of_another_type_is_an_error(opened: App) -> None:
    async with app.worker():
        with pytest.raises(ResultInvalid, match=r"test\.liar"):
            await (await liar.enqueue()).result(timeout=20)


async def test_waiting_has_an_end_and_the_task_goes_on(opened: App) -> None:
    handle = await add.enqueue(1)
    with pytest.raises(ResultTimeout, match=r"has not ended within 0.1 s") as caught:
        await handle.result(timeout=0.1)
    assert isinstance(caught.value, TimeoutError)
    assert await handle.status() == Status.QUEUED
    assert [reason.reason for reason in await handle.why()] == ["no capable worker"]
    await handle.cancel("changed my mind")
    with pytest.raises(TaskCancelled, match="changed my mind"):
        await handle.result(timeout=5)


async def test_waiting_outlives_an_outage(opened: App, eventually: Callable[..., Awaitable[Any]]) -> None:
    begun.clear()
    go_on.clear()
    async with app.worker():
        waiting = asyncio.create_task((await gated.enqueue()).result(timeout=60))
        await asyncio.wait_for(begun.wait(), 20)
        with capture_logs() as logs:
            async with outage(await app.database()):
                await eventually(
                    lambda: waiting.done() or [e for e in logs if "cannot read results" in e["event"]], 30
                )
        go_on.set()
        assert await waiting == "after all"


async def test_a_task_that_is_not_there(opened: App) -> None:
    with pytest.raises(NotFound):
        await add.handle(uuid4()).result(timeout=5)


async def test_options_are_terms_of_one_enqueue(opened: App) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    special = add.options(priority=15, run_at=at, timeout=5, tenant="ann", queue="fast", dedup_key="k")
    row = await (await special.enqueue(1)).look()
    assert (row["priority"], row["run_at"], row["timeout"]) == (15, at, timedelta(seconds=5))
    assert (row["tenant"], row["queue"], row["dedup_key"]) == ("ann", "fast", "k")
    assert not (await special.enqueue(2)).created
    assert (await (await add.enqueue(1)).look())["priority"] == 5


async def test_map_keeps_the_order(opened: App) -> None:
    async with app.worker():
        assert await (await add.map(range(300))).results(60) == [n + 10 for n in range(300)]
        sums = await add.starmap({"a": n, "b": n} for n in range(3))
        assert await sums.results(30) == [0, 2, 4]
    assert await (await add.map([])).results(1) == []


async def test_a_graph_goes_in_whole(opened: App) -> None:
    *_, sum_of_all = group(add.call(1), add.call(2), then=total.call())
    last = total.call().after(sum_of_all)
    handle = await app.enqueue(last)
    async with app.worker():
        assert await handle.result(timeout=30) == 23


async def test_a_chain_runs_in_order(opened: App) -> None:
    async with app.worker():
        handles = await app.enqueue(*chain(add.call(1), total.call(), total.call()))
        assert await handles.results(30) == [11, 11, 11]
    rows = [await handle.look() for handle in handles]
    assert rows[0]["generation_processed_at"] <= rows[1]["generation_started_at"]


async def test_what_a_failed_parent_means_is_stated(opened: App) -> None:
    bad = broken.call("first")
    cancelled, still = add.call(1).after(bad), add.call(2).after(bad, on_failure="run")
    handles = await app.enqueue(cancelled, still)
    async with app.worker():
        outcomes = await handles.outcomes(30)
    assert [outcome.status for outcome in outcomes] == ["Cancelled", "Complete"]


async def test_a_cycle_is_refused(opened: App) -> None:
    one, two = add.call(1), add.call(2)
    one.after(two)
    two.after(one)
    with pytest.raises(UsageError, match="cycle"):
        await app.enqueue(one)


async def test_any_keywords(opened: App) -> None:
    async with app.worker():
        assert await (await anything.enqueue(a=1, b="x")).result(20) == 2


def test_names() -> None:
    assert (add.name, renamed.name, add.__name__) == ("test.add", "other.name", "add")
    with pytest.raises(UsageError, match="two handlers"):
        app.task("test.add")(lambda: None)
    with pytest.raises(UsageError, match="name"):
        App("")


def test_what_is_declared_after_an_include_is_included() -> None:
    outer, inner = App("outer"), App("inner")
    outer.include(inner)
    inner.include(outer)
    inner.task("late")(lambda: None)
    inner.handlers.discover = lambda: inner.handlers.task("found")(lambda: None) and None
    assert {handler.name for handler in outer.handlers} == {"late", "found"}
    assert {handler.name for handler in outer.handlers} == {"late", "found"}, "discovered once"
    inner.task("later")(lambda: None)
    inner.handlers.discover = lambda: inner.handlers.task("found later")(lambda: None) and None
    for name in ("later", "found later"):
        assert outer.handlers.named(name).name == name


def test_include_takes_handlers_and_apps() -> None:
    handlers = Handlers()

    @handlers.task("room.task")
    async def room_task() -> None: ...

    whole = App("whole")
    whole.include(handlers)
    whole.include(app)
    assert {"room.task", "test.add"} <= {handler.name for handler in whole.handlers}


def test_each_event_loop_has_its_own_connection() -> None:
    async def once() -> Status:
        async with app:
            return await (await add.enqueue(1)).status()

    assert [asyncio.run(once()), asyncio.run(once())] == [Status.QUEUED, Status.QUEUED]


def test_cron_refuses_what_could_never_run() -> None:
    clock = App("clock")

    @clock.cron("*/5 * * * *", queue="chores")
    async def tidy() -> None: ...

    [cron] = clock.schedules
    assert (cron.name, cron.cron, cron.task["queue"]) == ("clock.tidy", "*/5 * * * *", "chores")
    with pytest.raises(UsageError, match="not a cron expression"):
        clock.cron("every day")(lambda: None)
    with pytest.raises(UsageError, match="has no default"):

        @clock.cron("* * * * *")
        async def needs(name: str) -> None: ...


async def test_a_deferred_task_comes_back(opened: App) -> None:
    tries: list[int] = []
    patient = App("patient")

    @patient.task()
    async def later(ctx: Context) -> int:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise Defer("not yet", 0.05)
        return len(tries)

    async with patient, patient.worker():
        assert await (await later.enqueue()).result(20) == 2
    assert tries == [1, 1]


def test_the_built_in_fleet_has_the_handlers_of_every_room() -> None:
    from shiftboss.app import fleet

    rooms = {handler.name.partition(".")[0] for handler in fleet.handlers}
    assert {"journal", "bot", "vectorizer"} <= rooms, sorted(handler.name for handler in fleet.handlers)


async def test_a_schedule_is_fired_by_the_clock(database_url: str) -> None:
    from shiftboss.app.schedule import register_schedules
    from shiftboss.kit import Kit
    from shiftboss.leader.schedules import fire_due

    clock = App("clock")
    ticks: list[str] = []

    @clock.cron("0 3 * * *", timezone="Europe/Madrid", queue="chores", backoff=5)
    async def nightly(ctx: Context, what: str = "tidy") -> None:
        ticks.append(what)

    async with Kit.open(clock, database_url) as kit:
        await kit.freeze(datetime(2030, 1, 1, 12, tzinfo=UTC))
        await register_schedules(kit.db, clock)
        await register_schedules(kit.db, clock)
        assert await fire_due(kit.db) == []
        await kit.move(hours=15)
        assert await fire_due(kit.db) == [], "the moved clock has fired it"
        await kit.drain("chores")
    assert ticks == ["tidy"]
