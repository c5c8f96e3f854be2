"""The engine with anybody's prompts: messages, templates, schemas, tools and streams, against the real protocols."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Need
from shiftboss.extensions.ai.configure import configured
from shiftboss.extensions.ai.errors import Exhausted
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.model.errors import ConfigError, Defer, UsageError

from .conftest import FaultProxy, ProtocolServer

REMOTE = ("openai", "azure", "ollama")
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}


class Cat(BaseModel):
    """A cat."""

    name: str
    age: int = 3


async def test_a_plain_prompt(db: Database, server: ProtocolServer, make_settings: Any) -> None:
    server.answers("Minka", usage=USAGE)
    async with await AI.open(make_settings("openai"), db) as ai:
        answer = await ai.complete("A name for a cat?", system="Be short.", max_tokens=20, temperature=0.5)
    assert (answer.value, answer.text, answer.finish_reason) == ("Minka", "Minka", "stop")
    assert answer.usage.cost == pytest.approx(0.0035)
    [body] = server.bodies()
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert (body["max_tokens"], body["temperature"]) == (20, 0.5)
    assert "response_format" not in body


@pytest.mark.parametrize("provider", REMOTE)
async def test_a_schema_with_every_provider(
    provider: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers({"name": "Minka", "age": 4})
    async with await AI.open(make_settings(provider)) as ai:
        answer = await ai.complete("A cat, please", schema=Cat, model=provider)
    assert answer.value == Cat(name="Minka", age=4)
    [body] = server.bodies()
    if provider == "ollama":
        assert "age" in body["messages"][0]["content"]
        return
    wanted = body["response_format"]["json_schema"]
    assert (wanted["strict"], wanted["schema"]["required"]) == (True, ["name", "age"])
    assert wanted["schema"]["additionalProperties"] is False
    assert "default" not in json.dumps(wanted), "strict mode knows no defaults"


async def test_a_schema_that_strict_mode_can_not_express(server: ProtocolServer, make_settings: Any) -> None:
    class Ages(BaseModel):
        by_name: dict[str, int]

    server.answers({"by_name": {"Minka": 4}})
    async with await AI.open(make_settings("openai")) as ai:
        assert (await ai.complete("x", schema=Ages, model="openai")).value.by_name == {"Minka": 4}
    [body] = server.bodies()
    assert body["response_format"]["json_schema"]["strict"] is False
    assert "by_name" in body["messages"][0]["content"], "then it is told in words"


async def test_an_answer_of_another_shape_is_repaired(server: ProtocolServer, make_settings: Any) -> None:
    server.answers({"name": "Minka"}, to="That reply is invalid")
    server.answers({"age": "old"})
    async with await AI.open(make_settings("openai")) as ai:
        assert (await ai.complete("x", schema=Cat)).value.name == "Minka"


@pytest.mark.parametrize("provider", REMOTE)
async def test_a_tool_is_asked_for_and_answered(
    provider: str, server: ProtocolServer, make_settings: Any
) -> None:
    class Weather(BaseModel):
        """The weather of a city."""

        city: str

    server._add({"match": {"userMessage": "Rain"},
                 "response": {"toolCalls": [{"name": "Weather", "arguments": '{"city": "Lisbon"}'}]}})  # fmt: skip
    async with await AI.open(make_settings(provider)) as ai:
        asked = [{"role": "user", "content": "Rain in Lisbon?"}]
        answer = await ai.complete(messages=asked, tools=[Weather], model=provider)
        [call] = answer.tool_calls
        assert (call.name, call.arguments) == ("Weather", {"city": "Lisbon"})
        server.reset()
        server.answers("No rain.")
        told = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        final = await ai.complete(messages=[*asked, answer.message, told], tools=[Weather], model=provider)
    assert final.text == "No rain."
    [body] = server.bodies()
    assert body["tools"][0]["function"]["name"] == "Weather"
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == "Weather"


@pytest.mark.parametrize("provider", REMOTE)
async def test_a_stream_with_every_provider(
    provider: str, db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    text = "Once upon a time there was a cat that could code in several languages. " * 3
    server.answers(text, usage=USAGE)
    async with await AI.open(make_settings(provider), db) as ai:
        stream = ai.stream("Tell me a story", model=provider, tenant="acme")
        pieces = [piece async for piece in stream]
    assert len(pieces) > 1
    assert "".join(pieces) == stream.answer.text == text
    [call] = await db.ai.calls()
    assert (call["outcome"], call["tenant"], call["call_id"]) == ("ok", "acme", stream.answer.call_id)
    assert call["completion_tokens"] > 0
    if provider != "ollama":
        assert float(call["cost"]) == pytest.approx(0.0035)


async def test_the_local_provider_streams_its_analysis(db: Database) -> None:
    async with await AI.open(AISettings(providers=["local"]), db) as ai:
        stream = ai.stream(template="sentiment_analysis", variables={"content": "I love this happy day"})
        said = "".join([piece async for piece in stream])
    assert json.loads(said)["processed_data"]["overall_sentiment"]["label"] == "positive"
    with pytest.raises(RuntimeError, match="has not ended"):
        _ = AI.stream.__get__(ai)("x").answer


async def test_a_stream_falls_back_before_it_has_begun(server: ProtocolServer, make_settings: Any) -> None:
    server.fails(500, model="gpt-4o")
    server.answers("from the other one")
    settings = make_settings("openai", "azure")
    async with await AI.open(settings) as ai:
        stream = ai.stream("x", need=Need.ADVANCED)
        assert "".join([piece async for piece in stream]) == "from the other one"
    assert stream.answer.provider == "azure"


async def test_leaving_a_stream_books_what_was_said(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("word " * 200)
    async with await AI.open(make_settings("openai"), db) as ai:
        async with ai.stream("x", model="openai") as stream:
            async for _ in stream:
                break
        [call] = await db.ai.calls()
    assert call["outcome"] == "cancelled"
    assert float(call["cost"]) > 0


async def test_a_stream_without_usage_is_counted(db: Database, proxy: FaultProxy, make_settings: Any) -> None:
    piece = {"model": "m", "choices": [{"index": 0, "delta": {"content": "half an"}, "finish_reason": None}]}
    proxy.fault, proxy.canned = "canned", f"data: {json.dumps(piece)}\n\n".encode()
    async with await AI.open(make_settings("openai", url=proxy.url), db) as ai:
        stream = ai.stream("x", model="openai")
        said = "".join([text async for text in stream])
    assert said == "half an"
    assert stream.answer.usage.completion_tokens > 0, "counted, though the server did not"


async def test_the_second_stream_comes_from_the_cache(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("Minka")
    async with await AI.open(make_settings("openai"), db) as ai:
        for cached in (False, True):
            stream = ai.stream("A name?", model="openai")
            assert "".join([piece async for piece in stream]) == "Minka"
            assert stream.answer.cached is cached
        assert not (await ai.complete("A name?", model="openai", cache=False)).cached
        assert (await ai.complete("A name?", model="openai")).cached
    assert len(server.requests()) == 2
    assert sorted(call["outcome"] for call in await db.ai.calls()) == ["cached", "cached", "ok", "ok"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "summary@1.j2").write_text("Sum up: {{ text }}")
    (folder / "summary@2.j2").write_text(
        "{% block system %}You are a {{ tone | default('calm') }} editor.{% endblock %}"
        "{% block user %}Sum this up:\n{{ text | fenced }}{% endblock %}"
    )
    return folder


async def test_a_template_of_ones_own(
    db: Database, server: ProtocolServer, make_settings: Any, prompts: Path
) -> None:
    server.answers("short")
    settings = make_settings("openai").model_copy(update={"prompts": prompts})
    async with await AI.open(settings, db) as ai:
        newest = await ai.complete(template="summary", variables={"text": "a long text"})
        older = await ai.complete(template="summary@1", variables={"text": "a long text"})
    assert newest.template == "summary"
    assert (newest.template_version or "").startswith("2-")
    assert (older.template_version or "").startswith("1-")
    first, second = server.bodies()
    assert first["messages"][0] == {"role": "system", "content": "You are a calm editor."}
    assert [m["role"] for m in second["messages"]] == ["user"], "no system prompt but the template's own"
    calls = await db.ai.calls()
    assert {call["template_version"] for call in calls} == {newest.template_version, older.template_version}
    assert {call["task_type"] for call in calls} == {"summary"}, "a limit of the type applies to each version"


async def test_the_variables_of_a_template_are_checked(make_settings: Any, prompts: Path) -> None:
    settings = AISettings(providers=["local"], prompts=prompts)
    async with await AI.open(settings) as ai:
        with pytest.raises(UsageError, match="template summary needs the variable text"):
            await ai.complete(template="summary", variables={"tone": "x"})
        with pytest.raises(UsageError, match="template summary has no variable txt"):
            await ai.complete(template="summary", variables={"text": "x", "txt": "y"})
        with pytest.raises(ConfigError, match="no prompt template 'summry'"):
            await ai.complete(template="summry")
        with pytest.raises(ConfigError, match="no prompt template 'summary@9'") as unknown:
            await ai.complete(template="summary@9")
        assert unknown.value.hint == "choose one of: summary@1, summary@2"
        with pytest.raises(UsageError, match="give exactly one of"):
            await ai.complete("x", template="summary")


async def test_an_edited_template_is_another_version(prompts: Path) -> None:
    from shiftboss.extensions.ai.prompts import Prompts

    before = Prompts(prompts).get("summary@1").version
    (prompts / "summary@1.j2").write_text("Sum up briefly: {{ text }}")
    assert Prompts(prompts).get("summary@1").version != before


def with_models(settings: AISettings, **models: Any) -> AISettings:
    return AISettings.model_validate(settings.model_dump() | {"models": models})


async def test_several_deployments_share_the_calls_by_weight(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("x")
    address = {"base_url": f"{server.url}/v1"}
    mini = {
        "deployments": [{"model": "often", "weight": 9, **address}, {"model": "seldom", "weight": 1, **address}],
        "prompt_cost": 1.0,
    }  # fmt: skip
    async with await AI.open(with_models(make_settings("local"), mini=mini), db) as ai:
        orders = [ai.router.route(Need.BASIC, "mini")[0].providers[0].model for _ in range(400)]
        answer = await ai.complete("hello", model="mini")
    assert 320 <= orders.count("often") <= 390
    assert answer.provider in ("mini/1", "mini/2")
    assert answer.usage.cost > 0


async def test_a_deployment_at_its_limit_passes_work_to_its_sibling(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("x")
    address = {"base_url": f"{server.url}/v1", "requests_per_minute": 1}
    mini = {"deployments": [{"model": "a", **address}, {"model": "b", **address}]}
    async with await AI.open(with_models(make_settings("local"), mini=mini), db) as ai:
        served = [(await ai.complete(str(n), model="mini")).provider for n in range(2)]
        assert sorted(served) == ["mini/1", "mini/2"]
        with pytest.raises(Defer, match="rate limited"):
            await ai.complete("third", model="mini")


async def test_a_prompt_too_long_for_one_model_goes_to_a_larger_one(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("x")
    address = {"base_url": f"{server.url}/v1"}
    small = {"deployments": [{"model": "s", **address}], "context_window": 100, "fallback": ["large"]}
    large = {"deployments": [{"model": "l", **address}], "context_window": 100_000}
    async with await AI.open(with_models(make_settings("local"), small=small, large=large), db) as ai:
        assert (await ai.complete("short", model="small")).provider == "small/1"
        assert (await ai.complete("long " * 500, model="small")).provider == "large/1"
        with pytest.raises(Exhausted, match="exceed the context window of 100000"):
            await ai.complete("long " * 100_000, model="small")
    assert len(server.requests()) == 2


async def test_the_key_of_one_vendor_is_not_sent_to_another_server(
    locked_server: ProtocolServer, make_settings: Any
) -> None:
    address = {"base_url": f"{locked_server.url}/v1"}
    mine = {"deployments": [{"model": "m", **address}]}
    settings = AISettings.model_validate({"openai": {"api_key": "the-right-key"}, "models": {"mine": mine}})
    async with await AI.open(settings) as ai:
        with pytest.raises(Exhausted, match="key refused"):
            await ai.complete("x", model="mine")
    keyed = {"deployments": [{"model": "m", "api_key_env": "MINE", **address}]}
    settings = AISettings.model_validate({"models": {"mine": keyed}})
    locked_server._control.headers["Authorization"] = "Bearer the-right-key"
    locked_server.answers("in")
    async with await AI.open(settings, environment={"MINE": "the-right-key"}) as ai:
        assert (await ai.complete("x", model="mine")).text == "in"


async def test_a_model_that_is_not_there(make_settings: Any) -> None:
    settings = make_settings("openai", "local")
    async with await AI.open(settings) as ai:
        with pytest.raises(ConfigError, match="there is no model 'gpt-9'") as unknown:
            await ai.complete("x", model="gpt-9")
        for ask in (
            ai.complete("x", model="azure"),
            ai.embed(["x"], "azure"),
            ai.embed(["x"], None, "azure"),
        ):
            with pytest.raises(ConfigError, match="provider 'azure' is not configured") as unset:
                await ask
            assert "set AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT" in (unset.value.hint or "")
    header, line = str(unknown.value.hint).partition("shiftboss.toml: ")[2].split(" and below it ")
    added = tomllib.loads(f"{header}\n{line}")["ai"]["models"]
    assert list(AISettings.model_validate({"models": added}).models) == ["gpt-9"], "the hint works as printed"


async def test_embeddings_of_a_provider(server: ProtocolServer, make_settings: Any) -> None:
    """A provider, or its embedding model, is named in `model` as it is for completions."""
    async with await AI.open(make_settings("openai", "local")) as ai:
        made = [await ai.embed(["x"], model) for model in (None, "local", "openai", "text-embedding-3-small")]
        assert [each.provider for each in made] == ["local", "local", "openai", "openai"]
        assert (await ai.embed(["x"], "another", "openai")).provider == "openai"
    assert [body["model"] for body in server.bodies()] == ["text-embedding-3-small"] * 2 + ["another"]


def test_a_deployment_without_its_key_names_the_model(make_settings: Any) -> None:
    mine = {"deployments": [{"model": "m", "base_url": "http://127.0.0.1:1/v1", "api_key_env": "MINE_KEY"}]}
    settings = AISettings.model_validate({"models": {"mine": mine}})
    with pytest.raises(ConfigError, match=r"ai.models: mine/1 needs .* MINE_KEY"):
        asyncio.run(AI.open(settings, environment={}))
    assert not configured(settings, {})["mine/1"]
    assert configured(settings, {"MINE_KEY": "k"})["mine/1"]


async def test_vectors_are_bought_once(db: Database, server: ProtocolServer, make_settings: Any) -> None:
    settings = make_settings("openai").model_copy(update={"embedding_provider": "openai"})
    async with await AI.open(settings, db) as ai:
        first = await ai.embed(["one", "two", "one"])
    async with await AI.open(settings, db) as other:
        second = await other.embed(["two", "three"])
        third = await other.embed(["one", "two"])
    assert len(server.requests()) == 2, "one and two; then three"
    assert (second.vectors[0] == first.vectors[1]).all()
    assert (third.vectors == first.vectors[:2]).all()
    assert third.usage.tokens == 0


async def test_a_call_can_be_looked_up(db: Database, server: ProtocolServer, make_settings: Any) -> None:
    server.answers("Your number is 4111-1111", usage=USAGE)
    record = {"redact": [r"\d{4}-\d{4}"], "longest": 60}
    settings = make_settings("openai").model_copy(
        update={"record": type(make_settings("openai").record).model_validate(record)}
    )
    async with await AI.open(settings, db) as ai:
        answer = await ai.complete("My card is 4242-4242, and so on" + "!" * 100, key="user-7", cache=False)
        await ai.complete("unseen", cache=False)
    assert answer.call_id is not None
    call = await db.ai.call(answer.call_id)
    assert call is not None
    asked = call["prompt"]["messages"][0]["content"]
    assert asked.startswith("My card is [redacted], and so on!")
    assert asked.endswith("characters)")
    assert call["answer"]["text"] == "Your number is [redacted]"
    assert (call["key"], call["cached"], call["prompt_tokens"]) == ("user-7", False, 1000)
    assert call["latency_ms"] > 0
    await db.execute("UPDATE shiftboss.ai_call_texts SET expires_at = clock_timestamp() - interval '1 s'")
    later = await db.ai.call(answer.call_id)  # expired texts are not shown, even before they are pruned
    assert later is not None
    assert (later["prompt"], later["prompt_tokens"]) == (None, 1000), "the call outlives its texts"


async def test_texts_are_kept_of_a_sample(db: Database, server: ProtocolServer, make_settings: Any) -> None:
    server.answers("x")
    settings = make_settings("openai")
    none = settings.model_copy(update={"record": settings.record.model_copy(update={"sample": 0.0})})
    async with await AI.open(none, db) as ai:
        await ai.complete("secret thoughts", model="openai")
    [call] = await db.ai.calls()
    assert (call["outcome"], call["prompt"], call["answer"]) == ("ok", None, None)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"timeout": -1}, "timeout is -1"),
        ({"schema": dict}, "schema is <class 'dict'>"),
        ({"need": "cheap"}, "need is 'cheap'"),
    ],
)
async def test_an_invalid_value_is_refused_and_does_not_count_against_the_provider(
    server: ProtocolServer, make_settings: Any, ask: dict[str, Any], message: str
) -> None:
    async with await AI.open(make_settings("openai")) as ai:
        with pytest.raises(UsageError, match=message):
            await ai.complete("Who?", **ask)
    assert not server.requests()


async def test_the_timeout_of_a_caller_does_not_open_the_circuit(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    """It says nothing about the provider, which other callers give more time."""
    server.answers("late")
    server.chaos(latencyMs=400)
    async with await AI.open(make_settings("openai"), db) as ai:
        for number in range(2):
            with pytest.raises(Exhausted, match=r"timed out after 0\.05 s"):
                await ai.complete(f"number {number}", timeout=0.05, model="openai")
        assert (await ai.complete("Who?", model="openai")).text == "late"
    outcomes = [call["outcome"] for call in await db.ai.calls()]
    assert outcomes == ["ok", *["cancelled"] * 6]


@pytest.mark.parametrize(
    ("keywords", "near"),
    [({"tennant": "acme"}, "tenant"), ({"max_token": 3}, "max_tokens"), ({"tenent": "a"}, "tenant")],
)
async def test_an_unknown_keyword_is_refused_before_anything_is_paid(
    server: ProtocolServer, make_settings: Any, keywords: dict[str, Any], near: str
) -> None:
    async with await AI.open(make_settings("openai")) as ai:
        with pytest.raises(UsageError, match="complete\\(\\) has no keyword") as refused:
            await ai.complete("hi", **keywords)
        assert refused.value.hint == f"did you mean {near!r}?"
        with pytest.raises(UsageError, match="stream\\(\\) has no keyword"):
            ai.stream("hi", **keywords)
        with pytest.raises(UsageError, match="embed\\(\\) has no keyword"):
            await ai.embed(["hi"], **keywords)
    assert server.requests() == []


async def test_without_a_key_the_error_names_the_variables() -> None:
    async with await AI.open(AISettings(providers=["openai", "local"]), environment={}) as ai:
        with pytest.raises(Exhausted, match=r"set OPENAI_API_KEY.*OLLAMA_HOST.*not 'completion'"):
            await ai.complete("Tell a joke")


@pytest.mark.parametrize("provider", ["openai", "azure", "ollama"])
async def test_a_refused_connection_costs_nothing(db: Database, make_settings: Any, provider: str) -> None:
    settings = make_settings(provider, url="http://127.0.0.1:9", prompt_cost=1, completion_cost=1)
    async with await AI.open(settings, db) as ai:
        with pytest.raises(Exhausted, match="connection failed"):
            await ai.complete("Tell a joke", model=provider)
    calls = await db.fetch(
        "SELECT outcome, prompt_tokens + completion_tokens AS tokens, cost FROM shiftboss.ai_calls"
    )
    assert {(call["outcome"], call["tokens"], call["cost"]) for call in calls} == {("unavailable", 0, 0)}
