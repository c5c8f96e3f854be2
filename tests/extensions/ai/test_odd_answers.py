"""An unusual answer of a provider affects only its own request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Need, answers
from shiftboss.extensions.ai.errors import Exhausted
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.vectorizer.worker import VectorizerWorker
from shiftboss.model.errors import Defer

from .asking import asked
from .conftest import SENTIMENT, FaultProxy, ProtocolServer


def ask(text: str = "What a day!") -> dict[str, Any]:
    return asked("sentiment_analysis", text, answers.SentimentAnalysis, need=Need.ADVANCED)


def said(content: str, **more: Any) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    return json.dumps({"model": "m", "choices": [choice], **more}).encode()


async def test_an_error_that_can_not_be_stored_stops_no_later_call(
    db: Database, proxy: FaultProxy, make_settings: Any
) -> None:
    async with await AI.open(make_settings("openai", url=proxy.url), db) as ai:
        proxy.fault, proxy.status = "canned", "400 Bad Request"
        proxy.canned = rb'{"error": {"message": "no \u0000 for \ud83d", "type": "t"}}'
        with pytest.raises(Exhausted):
            await ai.complete(**ask())
        proxy.status, proxy.canned = "200 OK", said(json.dumps(SENTIMENT))
        assert (await ai.complete(**ask("another"))).provider == "openai"
    rows = await db.fetch("SELECT outcome, error FROM shiftboss.ai_calls ORDER BY id")
    assert [row["outcome"] for row in rows] == ["unsuitable", "ok"]
    assert r"no \x00 for \ud83d" in rows[0]["error"]


@pytest.mark.parametrize("header", ["Retry-After: 99999999999999", "Retry-After-Ms: inf"])
async def test_a_wait_without_end_is_a_day(
    db: Database, proxy: FaultProxy, make_settings: Any, header: str
) -> None:
    proxy.fault, proxy.status, proxy.headers = "canned", "429 Too Many Requests", f"{header}\r\n"
    async with await AI.open(make_settings("openai", url=proxy.url), db) as ai:
        with pytest.raises(Defer) as held:
            await ai.complete(**ask())
        assert held.value.seconds == 86_400
        with pytest.raises(Defer):
            await ai.complete(**ask("another"))


@pytest.mark.parametrize("tokens", [2**40, -5, None, "many"])
async def test_strange_counts_of_tokens_are_settled(
    db: Database, proxy: FaultProxy, make_settings: Any, tokens: Any
) -> None:
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens}
    proxy.fault, proxy.canned = "canned", said(json.dumps(SENTIMENT), usage=usage)
    async with await AI.open(make_settings("openai", url=proxy.url), db) as ai:
        assert (await ai.complete(**ask())).usage.cost >= 0
    assert [row["outcome"] for row in await db.fetch("SELECT outcome FROM shiftboss.ai_calls")] == ["ok"]


async def test_what_can_never_be_settled_stands_in_nobodys_way(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers(SENTIMENT)
    await db.execute(
        "ALTER TABLE shiftboss.ai_calls ADD CONSTRAINT odd CHECK (task_type <> 'odd' OR outcome IS NULL)"
    )
    async with await AI.open(make_settings("openai"), db) as ai:
        await ai.complete(**ask("odd"), task_type="odd")
        await ai.complete(**ask())
    rows = await db.fetch("SELECT outcome FROM shiftboss.ai_calls ORDER BY id")
    assert [row["outcome"] for row in rows] == [None, "ok"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [{}]}',
        b'{"choices": 3}',
        b'{"choices": [{"message": null}]}',
        b"[]",
        b'"hello"',
    ],
)
async def test_an_answer_of_another_shape_is_passed_over(
    proxy: FaultProxy, make_settings: Any, body: bytes
) -> None:
    proxy.fault, proxy.canned = "canned", body
    async with await AI.open(make_settings("openai", "local", url=proxy.url)) as ai:
        assert (await ai.complete(**ask("I love this happy day"))).provider == "local"


@pytest.mark.parametrize(
    "body",
    [
        b'{"data": [{"index": 0}]}',
        b'{"data": [{"index": null, "embedding": [1]}, {"index": 1, "embedding": [1]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [1]}]}',
        b'{"data": [{"index": 0, "embedding": 1}]}',
        b'"hello"',
    ],
)
async def test_vectors_of_another_shape_are_an_error_of_the_provider(
    proxy: FaultProxy, make_settings: Any, body: bytes
) -> None:
    proxy.fault, proxy.canned = "canned", body
    settings = make_settings("openai", url=proxy.url).model_copy(update={"embedding_provider": "openai"})
    async with await AI.open(settings) as ai:
        with pytest.raises(Exhausted, match="malformed"):
            await ai.embed(["x"])


async def test_a_nul_in_an_answer_is_left_out_and_the_rest_is_kept(
    db: Database, proxy: FaultProxy, make_settings: Any
) -> None:
    found = {"title": "a\x00b", "language": "en", "source": "text", "fields": {"k\x00": [2**70, "\x00"]}}
    proxy.fault, proxy.canned = (
        "canned",
        said(json.dumps({"confidence_score": 1, "processed_data": found})),
    )
    request = asked("raw_data_parsing", f"k: {2**70}", answers.RawDataParsing, Need.ADVANCED)
    async with await AI.open(make_settings("openai", url=proxy.url), db) as ai:
        first, second = await ai.complete(**request), await ai.complete(**request)
    assert (first.value.processed_data.title, second.cached) == ("ab", True)
    assert second.value.processed_data.fields == {"k": [float(2**70), ""]}


async def test_half_a_character_is_asked_about_like_any_other() -> None:
    async with await AI.open(AISettings(providers=["local"])) as ai:
        answer = await ai.complete(**ask("I love this happy day \ud83d"))
        assert answer.value.processed_data.overall_sentiment.label == "positive"
        assert len(await ai.embed(["half \ud83d", "whole"])) == 2


async def test_a_bad_text_does_not_cost_others_theirs(server: ProtocolServer, make_settings: Any) -> None:
    server._add(
        {"match": {"inputText": "poison"}, "response": {"error": {"message": "too long"}, "status": 400}}
    )
    settings = make_settings("openai").model_copy(update={"embedding_provider": "openai"})
    async with await AI.open(settings) as ai:
        outcomes = await asyncio.gather(
            *(ai.embed([text]) for text in ("one", "poison", "two")), return_exceptions=True
        )
    assert [isinstance(outcome, Exhausted) for outcome in outcomes] == [False, True, False]


async def test_a_row_that_the_provider_refuses_holds_up_no_other(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server._add(
        {"match": {"inputText": "poison"}, "response": {"error": {"message": "too long"}, "status": 400}}
    )
    await db.execute("CREATE TABLE notes (id int PRIMARY KEY, body text)")
    await db.execute("INSERT INTO notes VALUES (1, 'one'), (2, 'poison'), (3, 'three')")
    id = await db.vectorizers.create("notes", columns=["body"], provider="openai")
    async with await AI.open(make_settings("openai"), db) as ai:
        worker = VectorizerWorker(db, ai, once=True)
        await worker.run()
    assert worker.errors == {}
    assert [row["id"] for row in await db.fetch("SELECT id FROM notes_embedding_store ORDER BY id")] == [1, 3]
    [error] = await db.vectorizers.errors(id)
    assert (error["key"], error["step"], error["state"]) == ({"id": "2"}, "embed", "retrying")
    [status] = await db.vectorizers.status(id)
    assert status["deferred_until"] is None
