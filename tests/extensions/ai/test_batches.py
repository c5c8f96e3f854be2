"""Embeddings travel in batches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.batches import MAX_TOKENS, cut
from shiftboss.extensions.ai.errors import Exhausted
from shiftboss.model.errors import Defer

from .conftest import ProtocolServer


def test_batches_are_bounded_by_number_and_by_tokens() -> None:
    assert list(cut(["a"] * 5, 2)) == [["a", "a"], ["a", "a"], ["a"]]
    long = "x" * (MAX_TOKENS * 4 // 2)
    assert [len(batch) for batch in cut([long, long, "short", long], 10)] == [1, 2, 1]
    assert list(cut([], 3)) == []


@pytest.fixture
def settings(make_settings: Any) -> Any:
    return make_settings("openai").model_copy(update={"embedding_provider": "openai", "embedding_batch": 16})


async def test_small_requests_at_once_are_one_call(server: ProtocolServer, settings: Any) -> None:
    async with await AI.open(settings) as ai:
        made = await asyncio.gather(*(ai.embed([f"text {n}", "shared"]) for n in range(5)))
        alone = await ai.embed(["text 3"])
    assert len(server.requests()) == 2, "one for the five, one for the late one"
    assert all(len(one) == 2 for one in made)
    assert (made[3].vectors[0] == alone.vectors[0]).all()
    assert (made[0].vectors[1] == made[4].vectors[1]).all()
    assert not (made[0].vectors[0] == made[1].vectors[0]).all()


async def test_a_failure_reaches_everybody_and_nobody_after(server: ProtocolServer, settings: Any) -> None:
    server.fails(400)
    async with await AI.open(settings) as ai:
        outcomes = await asyncio.gather(*(ai.embed([str(n)]) for n in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Exhausted] * 3
        server.reset()
        assert len(await ai.embed(["again"])) == 1


async def test_a_cancelled_asker_leaves_the_others_alone(server: ProtocolServer, settings: Any) -> None:
    server.chaos(latencyMs=200)
    async with await AI.open(settings) as ai:
        first, second = (asyncio.create_task(ai.embed([text])) for text in ("one", "two"))
        await asyncio.sleep(0)
        first.cancel()
        assert len(await second) == 1


async def test_held_embeddings_defer(server: ProtocolServer, settings: Any) -> None:
    server.fails(429, retry_after=9)
    async with await AI.open(settings) as ai:
        with pytest.raises(Defer) as held:
            await ai.embed(["x"])
    assert (held.value.reason, held.value.seconds) == ("rate limited", 9)
