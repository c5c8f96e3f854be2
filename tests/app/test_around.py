"""Around a task: middleware, worker hooks, and resources that are opened once and injected by type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from shiftboss import App, Context, GiveUp, inject
from shiftboss.db import Database
from shiftboss.kit import Kit, run
from shiftboss.model.errors import TaskFailed, UsageError
from shiftboss.worker.middleware import AttemptFailed, Next
from tests.app import around_tasks


class Client:
    """Stands for an HTTP client."""

    opened = 0

    def __init__(self, name: str = "") -> None:
        Client.opened += 1
        self.open = True
        self.name = name


class Model:
    pass


class Pool:
    pass


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def app(said: list[str]) -> App:
    app = App("around")

    @app.middleware
    async def outer(ctx: Context, call_next: Next) -> Any:
        said.append(f"> {ctx.task.task_type} {ctx.attempt}")
        try:
            return await call_next()
        except Exception as error:
            said.append(f"! {type(error).__name__}")
            raise
        finally:
            said.append("<")

    @app.middleware
    async def inner(ctx: Context, call_next: Next) -> Any:
        result = await call_next()
        return {"wrapped": result} if ctx.task.metadata else result

    @app.on_start
    def begin() -> None:
        said.append("start")

    @app.on_stop
    async def end() -> None:
        said.append("stop")

    @app.resource
    async def client() -> AsyncIterator[Client]:
        made = Client()
        yield made
        made.open = False
        said.append("client closed")

    @app.resource
    def model() -> Iterator[Model]:
        yield Model()
        said.append("model closed")

    @app.resource
    async def pool() -> Pool:
        return Pool()

    app.include(around_tasks.app)
    return app


async def test_middleware_is_around_every_mode_of_task(app: App, said: list[str], database_url: str) -> None:
    @app.task()
    async def fine(n: int) -> int:
        return n

    @app.task(max_attempts=1)
    def broken() -> None:
        raise KeyError("x")

    async with Kit.open(app, database_url) as kit:
        plain = await fine.enqueue(1)
        changed = await fine.options(metadata={"wrap": True}).enqueue(2)
        far = await around_tasks.halve.enqueue(4)
        failed = await broken.enqueue()
        far_failed = await around_tasks.halve.options(max_attempts=1).enqueue(1)
        await kit.drain()
        rows = [await handle.look() for handle in (plain, changed, far, failed, far_failed)]
    assert [row["result_data"] for row in rows] == [1, {"wrapped": 2}, 2.0, None, None]
    assert [row["status"] for row in rows] == ["Complete"] * 3 + ["Failed"] * 2
    assert "KeyError" in rows[3]["error_message"]
    assert "ZeroDivisionError" in rows[4]["error_message"]
    assert said.count("> around.fine 1") == 2
    assert {"! KeyError", f"! {AttemptFailed.__name__}"} < set(said)
    assert (said[0], said[-1]) == ("start", "stop")


async def test_middleware_may_end_an_attempt_itself() -> None:
    app = App("guarded")

    @app.middleware
    async def guard(ctx: Context, call_next: Next) -> Any:
        if ctx.task.params["n"] < 0:
            raise GiveUp("negative")
        return 0 if ctx.task.params["n"] == 0 else await call_next()

    @app.task()
    async def work(n: int) -> int:
        return n

    assert await run(work.call(3)) == 3
    assert await run(work.call(0)) == 0
    with pytest.raises(TaskFailed, match="negative"):
        await run(work.call(-1))


async def test_resources_are_opened_once_and_injected_by_type(
    app: App, said: list[str], db: Database
) -> None:
    seen: list[Client] = []

    @app.task()
    async def fetch(ctx: Context, url: str, client: Client = inject, pool: Pool = inject) -> str:
        assert client.open
        assert isinstance(pool, Pool)
        seen.append(client)
        return url

    @app.task()
    def think(model: Model, text: str) -> bool:
        return isinstance(model, Model)

    Client.opened = 0
    await app.use(db)
    async with app.worker():
        group = await fetch.map(["a", "b", "c"])
        assert await group.results(timeout=30) == ["a", "b", "c"]
        ask: Any = think.enqueue
        handle = await ask(text="hm")
        assert (await handle.look())["params"] == {"text": "hm"}
        assert await handle.result(timeout=30) is True
    assert (Client.opened, len({id(client) for client in seen})) == (1, 1)
    assert not seen[0].open
    assert said[-3:] == ["model closed", "client closed", "stop"]


async def test_a_worker_whose_start_fails_does_not_start(db: Database) -> None:
    app = App("around")

    @app.on_start
    async def begin() -> None:
        raise RuntimeError("no licence")

    await app.use(db)
    with pytest.raises(RuntimeError, match="no licence"):
        async with app.worker():
            pass
    assert await db.fetch("SELECT FROM workers WHERE status = 'active'") == []


def test_mistakes_are_named() -> None:
    app = App("around")
    with pytest.raises(UsageError, match="resource nothing has no return annotation"):

        @app.resource
        def nothing():  # type: ignore[no-untyped-def]
            yield 1

    @app.task()
    async def fetch(client: Client = inject) -> None: ...

    with pytest.raises(UsageError, match=r"around\.fetch: there is no resource for parameter client"):
        fetch.call()


async def test_a_direct_call_is_given_what_it_needs() -> None:
    app = App("around")

    @app.resource
    def client() -> Client:
        return Client("pool")

    @app.task()
    async def name(client: Client = inject) -> str:
        return client.name

    assert await name(Client("mine")) == "mine"
    assert await run(name.call()) == "pool"
