"""Vendor SDKs against a real protocol server: answers, usage, and every fault that a provider can have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shiftboss.extensions.ai import AI, Need, answers
from shiftboss.extensions.ai.errors import Exhausted, Limited, Malformed, Refused, Unavailable, Unsuitable
from shiftboss.extensions.ai.settings import AISettings, OllamaSettings, OpenAISettings
from shiftboss.model.errors import ConfigError, Defer

from .asking import asked
from .conftest import SENTIMENT, FaultProxy, ProtocolServer

NEEDS = {"openai": Need.ADVANCED, "azure": Need.STANDARD, "ollama": Need.BASIC}
REMOTE = sorted(NEEDS)


def ask(need: Need = Need.ADVANCED, text: str = "What a day!") -> dict[str, Any]:
    return asked("sentiment_analysis", text, answers.SentimentAnalysis, need=need)


async def cause_of(settings: AISettings, request: dict[str, Any] | None = None) -> Exception:
    """The error of the only provider of `settings`."""
    async with await AI.open(settings) as ai:
        with pytest.raises(Exhausted) as caught:
            await ai.complete(**(request or ask()))
    return caught.value.errors[0]


@pytest.mark.parametrize("name", REMOTE)
async def test_a_structured_answer_with_its_usage(
    name: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers(SENTIMENT, usage={"prompt_tokens": 1000, "completion_tokens": 100})
    async with await AI.open(make_settings(name)) as ai:
        answer = await ai.complete(**ask(NEEDS[name]))
    assert answer.value.processed_data.overall_sentiment.score == 0.8
    assert answer.provider == name
    assert not answer.cached
    if name != "ollama":
        assert answer.usage.cost == pytest.approx(1000 * 2.5e-6 + 100 * 10e-6)
    asked = server.bodies()[0]
    assert "What a day!" in asked["messages"][-1]["content"]
    told = asked["messages"][0]["content"] if name == "ollama" else json.dumps(asked["response_format"])
    assert "overall_sentiment" in told


@pytest.mark.parametrize("name", ["openai", "azure"])
async def test_embeddings_come_in_order_and_in_batches(
    name: str, server: ProtocolServer, make_settings: Any
) -> None:
    settings = make_settings(name).model_copy(update={"embedding_provider": name, "embedding_batch": 1})
    async with await AI.open(settings) as ai:
        made = await ai.embed(["one text", "another text", "one text"])
    assert len(made) == 3
    assert (made.vectors[0] == made.vectors[2]).all()
    assert not (made.vectors[0] == made.vectors[1]).all()
    assert len(server.requests()) == 3


async def test_ollama_embeddings(proxy: FaultProxy, make_settings: Any) -> None:
    # The protocol server answers /api/embed in the older, one-text shape; this is the documented one.
    proxy.fault, proxy.canned = (
        "canned",
        b'{"model": "m", "embeddings": [[1, 0], [0, 1]], "prompt_eval_count": 6}',
    )
    settings = make_settings("ollama", url=proxy.url).model_copy(update={"embedding_provider": "ollama"})
    async with await AI.open(settings) as ai:
        made = await ai.embed(["a", "b"])
        assert made.vectors.tolist() == [[1, 0], [0, 1]]
        assert made.usage.prompt_tokens == 6
        with pytest.raises(Exhausted, match="2 vectors for 3 texts"):
            await ai.embed(["a", "b", "c"])


@pytest.mark.parametrize("name", REMOTE)
async def test_a_server_error_is_tried_three_times(
    name: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.fails(500)
    error = await cause_of(make_settings(name), ask(NEEDS[name]))
    assert isinstance(error, Unavailable)
    assert len(server.requests()) == 3


async def test_a_passing_fault_is_survived(server: ProtocolServer, make_settings: Any) -> None:
    httpx_control = server._control
    httpx_control.post("/error", json={"status": 503}).raise_for_status()
    server.answers(SENTIMENT)
    async with await AI.open(make_settings("openai")) as ai:
        answer = await ai.complete(**ask())
    assert answer.provider == "openai"
    assert len(server.requests()) == 2


@pytest.mark.parametrize("name", REMOTE)
async def test_too_many_requests_defers_for_as_long_as_asked(
    name: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.fails(429, retry_after=37)
    async with await AI.open(make_settings(name)) as ai:
        with pytest.raises(Defer) as first:
            await ai.complete(**ask(NEEDS[name]))
        with pytest.raises(Defer) as second:
            await ai.complete(**ask(NEEDS[name], "another text"))
    assert first.value.reason == second.value.reason == "rate limited"
    assert first.value.seconds == 37
    assert 30 < second.value.seconds <= 37
    assert len(server.requests()) == 1, "the second was held back without asking"


async def test_a_refused_key_is_not_tried_again_nor_shown(
    locked_server: ProtocolServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = AISettings(
        providers=["openai"],
        openai=OpenAISettings(api_key="sk-secret-wrong", base_url=f"{locked_server.url}/v1"),
    )
    error = await cause_of(settings)
    assert isinstance(error, Refused)
    assert "sk-secret" not in f"{error} {error.hint} {settings!r} {caplog.text}"


async def test_the_right_key_is_accepted_from_a_file(locked_server: ProtocolServer, tmp_path: Any) -> None:
    (tmp_path / "key").write_text("the-right-key\n")
    locked_server._control.headers["Authorization"] = "Bearer the-right-key"
    locked_server.answers(SENTIMENT)
    openai = OpenAISettings(api_key_file=tmp_path / "key", base_url=f"{locked_server.url}/v1")
    async with await AI.open(AISettings(providers=["openai"], openai=openai)) as ai:
        assert (await ai.complete(**ask())).provider == "openai"


async def test_a_malformed_answer_is_shown_to_the_model_once(
    server: ProtocolServer, make_settings: Any
) -> None:
    bad = SENTIMENT | {"confidence_score": 7}
    server.answers(SENTIMENT, to="That reply is invalid", usage={"prompt_tokens": 10, "completion_tokens": 5})
    server.answers(bad, usage={"prompt_tokens": 10, "completion_tokens": 5})
    async with await AI.open(make_settings("openai")) as ai:
        answer = await ai.complete(**ask())
    assert answer.value.confidence_score == 0.92
    assert answer.usage.prompt_tokens == 20, "both calls are counted"
    correction = server.bodies()[1]["messages"]
    assert correction[-2]["role"] == "assistant"
    assert "confidence_score" in correction[-1]["content"]


async def test_twice_malformed_goes_to_the_next_provider(server: ProtocolServer, make_settings: Any) -> None:
    server.answers("I would rather write a poem.")
    async with await AI.open(make_settings("openai", "local")) as ai:
        answer = await ai.complete(**ask(text="I love this happy day"))
    assert answer.provider == "local"
    assert len(server.requests()) == 2


async def test_a_fenced_answer_is_understood(server: ProtocolServer, make_settings: Any) -> None:
    server.answers(f"Sure:\n```json\n{json.dumps(SENTIMENT)}\n```")
    async with await AI.open(make_settings("openai")) as ai:
        assert (await ai.complete(**ask())).value.confidence_score == 0.92


@pytest.mark.parametrize("name", REMOTE)
async def test_garbage_for_json(name: str, proxy: FaultProxy, make_settings: Any) -> None:
    proxy.fault = "canned"
    error = await cause_of(make_settings(name, url=proxy.url), ask(NEEDS[name]))
    assert isinstance(error, Malformed)


@pytest.mark.parametrize("name", REMOTE)
async def test_a_reset_connection(name: str, proxy: FaultProxy, make_settings: Any) -> None:
    proxy.fault = "reset"
    assert isinstance(await cause_of(make_settings(name, url=proxy.url), ask(NEEDS[name])), Unavailable)


@pytest.mark.parametrize("name", REMOTE)
async def test_a_dripping_answer_ends_at_the_deadline(
    name: str, proxy: FaultProxy, make_settings: Any
) -> None:
    proxy.fault = "drip"
    error = await cause_of(make_settings(name, url=proxy.url, timeout=0.3), ask(NEEDS[name]))
    assert isinstance(error, Unavailable)
    assert "timed out" in str(error)


@pytest.mark.parametrize("name", REMOTE)
async def test_a_slow_server_times_out(name: str, server: ProtocolServer, make_settings: Any) -> None:
    server.answers(SENTIMENT)
    server.chaos(latencyMs=3000)
    error = await cause_of(make_settings(name, timeout=0.2), ask(NEEDS[name]))
    assert isinstance(error, Unavailable)


async def test_nobody_listens() -> None:
    settings = AISettings(providers=["ollama"], ollama=OllamaSettings(base_url="http://127.0.0.1:9"))
    settings = settings.model_copy(
        update={"retry": settings.retry.model_copy(update={"base": 0, "jitter": 0})}
    )
    assert isinstance(await cause_of(settings, ask(Need.BASIC)), Unavailable)


async def test_fallback_walks_down_to_the_local_provider(server: ProtocolServer, make_settings: Any) -> None:
    server.fails(500)
    async with await AI.open(make_settings("openai", "azure", "ollama", "local")) as ai:
        answer = await ai.complete(**ask(text="I love this happy day"))
    assert answer.provider == "local"
    asked = [entry["path"] for entry in server.requests()]
    assert len(asked) == 9
    assert asked[0].startswith("/v1/")
    assert "/openai/deployments/" in asked[3]
    assert asked[6].startswith("/api/chat")


async def test_a_billed_answer_spends_an_attempt_although_another_provider_is_held(
    server: ProtocolServer, make_settings: Any
) -> None:
    """A deferred task spends no attempt: it would pay for the malformed answers again and again."""
    server.answers("not JSON")
    settings = make_settings("openai", "azure")
    held = settings.azure.model_copy(update={"base_url": "http://127.0.0.1:1"})
    breaker = settings.breaker.model_copy(update={"failures": 1})
    settings = settings.model_copy(update={"azure": held, "breaker": breaker})
    async with await AI.open(settings) as ai:
        with pytest.raises(Exhausted, match=r"^openai: malformed.*azure: the circuit of azure is open"):
            await ai.complete(**ask())


async def test_a_deferral_has_the_errors_of_all_providers(server: ProtocolServer, make_settings: Any) -> None:
    server.fails(429, retry_after=37)
    async with await AI.open(make_settings("openai", "azure")) as ai:
        with pytest.raises(Defer) as held:
            await ai.complete(**ask())
    assert held.value.hint is not None
    assert "openai: rate limited" in held.value.hint
    assert "azure: rate limited" in held.value.hint


async def test_a_server_without_the_model_says_so(proxy: FaultProxy, make_settings: Any) -> None:
    proxy.fault, proxy.status = "canned", "404 Not Found"
    proxy.canned = b'{"error": {"message": "The model `gpt-9` does not exist", "code": "model_not_found"}}'
    async with await AI.open(make_settings("openai", url=proxy.url)) as ai:
        with pytest.raises(Exhausted, match=r"^openai: .*404.*The model `gpt-9` does not exist") as refused:
            await ai.complete("x")
    assert refused.value.hint == "check model and base_url"


async def test_ollama_names_the_embedding_model_to_pull(proxy: FaultProxy, make_settings: Any) -> None:
    proxy.fault, proxy.status, proxy.canned = "canned", "404 Not Found", b'{"error": "not found"}'
    async with await AI.open(make_settings("ollama", url=proxy.url)) as ai:
        with pytest.raises(Exhausted, match="no model 'nomic-9'") as refused:
            await ai.embed(["x"], "nomic-9", "ollama")
    assert refused.value.hint == "run `ollama pull nomic-9`"


async def test_a_spent_quota_is_tried_again_after_a_minute(proxy: FaultProxy, make_settings: Any) -> None:
    proxy.fault, proxy.status = "canned", "429 Too Many Requests"
    proxy.canned = b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
    async with await AI.open(make_settings("openai", url=proxy.url)) as ai:
        with pytest.raises(Defer, match="the vendor's quota is spent") as held:
            await ai.complete("x")
    assert held.value.seconds == 60


async def test_open_without_anything_configured_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="no AI provider"):
        await AI.open(AISettings(providers=["openai"]), environment={})


async def test_vendors_own_variables_configure_them(server: ProtocolServer) -> None:
    environment = {
        "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1", "AZURE_OPENAI_API_KEY": "k",
        "AZURE_OPENAI_ENDPOINT": server.url, "OLLAMA_HOST": server.url,
    }  # fmt: skip
    async with await AI.open(AISettings(), environment=environment) as ai:
        orders = {need: [p.name for p in ai.router.order(need)] for need in Need}
    assert orders == {
        Need.ADVANCED: ["openai", "azure", "ollama", "local"],
        Need.STANDARD: ["azure", "openai", "ollama", "local"],
        Need.BASIC: ["ollama", "openai", "azure", "local"],
    }


async def test_a_bad_request_is_not_the_providers_failure(server: ProtocolServer, make_settings: Any) -> None:
    server.fails(400)
    error = await cause_of(make_settings("openai"))
    assert isinstance(error, Unsuitable)
    assert not isinstance(error, Limited)
    assert len(server.requests()) == 1


async def test_an_unknown_embedding_provider_names_the_known(make_settings: Any) -> None:
    async with await AI.open(make_settings("local")) as ai:
        with pytest.raises(ConfigError, match="not configured"):
            await ai.embed(["x"], provider="openai")
