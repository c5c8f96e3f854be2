"""The event stream: 200 clients on one LISTEN, no gap after a reconnect, and an end when the token ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import pytest

from shiftboss.db import Database
from shiftboss.db.events import Events
from shiftboss.extensions.admin import connections
from shiftboss.model.access import Role
from shiftboss.model.errors import DatabaseUnavailable

STREAM = "/api/v1/admin/events/stream"
Eventually = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def streamed(client: httpx.AsyncClient, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Messages of one stream, as {"event", "id", "data"}."""
    async with client.stream("GET", STREAM, headers=headers, timeout=30) as answer:
        assert answer.status_code == 200
        lines = answer.aiter_lines()
        assert await anext(lines) == "retry: 2000"

        async def messages() -> AsyncIterator[dict[str, Any]]:
            message: dict[str, Any] = {}
            async for line in lines:
                name, _, value = line.partition(": ")
                if name in ("event", "id"):
                    message[name] = value
                elif name == "data":
                    message["data"] = orjson.loads(value)
                elif not line and message:
                    yield message
                    message = {}

        yield messages()


async def test_two_hundred_clients_hear_everything(url: str, db: Database, eventually: Eventually) -> None:
    limits = httpx.Limits(max_connections=None)
    heard: list[list[dict[str, Any]]] = [[] for _ in range(200)]
    ready = 0

    async def listen(client: httpx.AsyncClient, mine: list[dict[str, Any]]) -> None:
        nonlocal ready
        async with streamed(client) as messages:
            ready += 1
            async for message in messages:
                mine.append(message)
                if len(mine) == 6:
                    return

    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
        clients = [asyncio.create_task(listen(client, mine)) for mine in heard]
        await eventually(lambda: ready == 200, timeout=60)
        listeners = await db.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        assert len(listeners) == 1
        run = await db.runs.start_run("verify")
        for n in range(4):
            await db.events.note("test.tick", details={"n": n})
        await asyncio.wait_for(asyncio.gather(*clients), 60)
    for mine in heard:
        kinds = [m["data"]["kind"] for m in mine if m["event"] == "event"]
        assert sorted(kinds) == ["run.pending", *["test.tick"] * 4]
        (changed,) = [m["data"] for m in mine if m["event"] == "run"]
        assert changed["id"] == str(run.id)


async def test_who_comes_back_gets_what_it_missed(url: str, db: Database) -> None:
    first = await db.events.note("test.one")
    second = await db.events.note("test.two")
    async with (
        httpx.AsyncClient(base_url=url) as client,
        streamed(client, **{"Last-Event-ID": str(first)}) as live,
    ):
        assert (await anext(live))["data"]["id"] == second
        await db.events.note("test.three")
        assert (await anext(live))["data"]["kind"] == "test.three"


async def test_progress_is_pushed(url: str, db: Database) -> None:
    from shiftboss.model.worker import Member

    run = await db.runs.start_run("verify")
    await db.workers.register(Member(id="w"))
    (task,) = await db.tasks.claim("w")
    async with httpx.AsyncClient(base_url=url) as client, streamed(client) as live:
        await db.runs.report_run(run.id, task.lease, 42, {"checked": 1})
        message = await anext(live)
        while message["event"] != "run" or message["data"]["progress"] == 0:
            message = await anext(live)
        assert (message["data"]["progress"], message["data"]["counters"]) == (42, {"checked": 1})


async def test_a_stream_ends_with_its_token(url: str, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftboss.extensions.admin.api.events.BEAT", 0.05)
    token = await db.tokens.create_token("ann", Role.VIEWER)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url) as client, streamed(client, **headers) as live:
        await db.tokens.revoke_token("ann")
        assert [message async for message in live] == []


async def test_a_busy_stream_ends_with_its_token_too(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the scheme in small letters, which HTTP allows."""
    monkeypatch.setattr("shiftboss.extensions.admin.api.events.BEAT", 0.3)
    token = await db.tokens.create_token("ann", Role.VIEWER)

    async def chatter() -> None:
        while True:
            await db.events.note("test.chatter")
            await asyncio.sleep(0.02)

    talk = asyncio.create_task(chatter())
    headers = {"Authorization": f"bearer {token}"}
    try:
        async with httpx.AsyncClient(base_url=url) as client, streamed(client, **headers) as live:
            until = asyncio.get_running_loop().time() + 1
            async for _ in live:
                if asyncio.get_running_loop().time() > until:
                    break
            else:
                pytest.fail("the stream ended though its token is good")
            await db.tokens.revoke_token("ann")
            async with asyncio.timeout(10):
                async for _ in live:
                    pass
    finally:
        talk.cancel()


async def test_changes_that_could_not_be_read_at_once_are_told_later(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that fails is no lost connection: nobody would tell that something was missed."""
    tried = 0
    named = Events.named

    async def fails_once(self: Events, ids: Any) -> Any:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise DatabaseUnavailable("no connection became free in time")
        return await named(self, ids)

    monkeypatch.setattr(Events, "named", fails_once)
    async with httpx.AsyncClient(base_url=url) as client, streamed(client) as live:
        await db.events.note("test.heard")
        async with asyncio.timeout(10):
            assert (await anext(live))["data"]["kind"] == "test.heard"
    assert tried == 1


async def test_a_stranger_can_not_fill_the_memory(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        for path in ("/api/v1/admin/session", "/login"):
            answer = await client.post(path, content=b"x" * 20_000_000)
            assert answer.status_code == 413


async def test_a_stranger_sends_no_large_body(url: str, db: Database) -> None:
    token = await db.tokens.create_token("ann", Role.OPERATOR)
    for credential, expected in (("", b"401"), ("sb_wrong", b"401"), (token, b"422")):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        head = f"POST /api/v1/admin/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {credential}\r\n"
        size = 1_000_000 if expected == b"422" else 10_000_000
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {size}\r\n\r\n".encode())
        writer.write(b" " * 1_000_000)  # of a stranger, the rest never comes
        async with asyncio.timeout(20):
            assert (await reader.readline()).split()[1] == expected
        writer.close()


#: Requests that never arrive as a whole.
HALVES = (
    b"",
    b"GET /healthz HTTP/1.1\r\nhost: x",
    b"POST /login HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx",
)


async def half(url: str, start: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    writer.write(start)
    return reader, writer


async def test_a_stranger_holds_few_connections(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_ARRIVING", 3)
    held = [await half(url, start) for start in HALVES]
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        with pytest.raises(httpx.TransportError):
            await client.get("/healthz")
        held[0][1].write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200" in await held[0][0].readline(), "of those that it holds, each may be used"
    for _, writer in held:
        writer.close()


async def test_a_request_arrives_in_time_or_never(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(30), httpx.AsyncClient(base_url=url, timeout=20) as client:
        monkeypatch.setattr(connections, "RECEIVE_SECONDS", 0.5)
        async with streamed(client) as live:
            for start in HALVES:
                reader, writer = await half(url, start)
                assert await reader.read() == b"", "closed without an answer"
                writer.close()
            changed = asyncio.ensure_future(anext(live))
            await asyncio.sleep(0)
            assert not changed.done(), "an answer may take longer than a request"
            changed.cancel()
