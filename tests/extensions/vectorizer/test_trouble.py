"""Provider failures cost no row an attempt, and no vector outlives its text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.errors import Malformed, Unsuitable
from shiftboss.extensions.ai.settings import AISettings, OpenAISettings, RetrySettings
from shiftboss.model.codec import new_key
from tests.app.test_encryption import SECRET, keys
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, vector_of, work
from tests.extensions.vectorizer.provider import Provider, serving

LOGIN = b"<html><body>Please log in</body></html>"


@asynccontextmanager
async def asking(db: Database, provider: Provider) -> AsyncIterator[AI]:
    settings = AISettings(
        providers=["openai"],
        openai=OpenAISettings(api_key="k", base_url=f"{provider.url}/v1", timeout=5),
        retry=RetrySettings(attempts=1, base=0, jitter=0),
    )
    async with await AI.open(settings, db, environment={}) as ai:
        yield ai


async def test_a_login_page_costs_no_row_a_try(db: Database) -> None:
    await blog(db, 41)
    id = await make(db, provider="openai", model="m", batch_size=10)
    async with serving() as provider, asking(db, provider) as ai:
        provider.answer = lambda _: (200, "text/html", LOGIN)
        await work(db, ai)
        [status] = await db.vectorizers.status(id)
        assert (status["state"], status["pending"], status["failed"]) == ("deferred", 41, 0)
        assert "malformed" in status["defer_reason"]
        assert await db.vectorizers.errors(id) == []
        assert len(provider.requests) < 30
        provider.answer = None
        await db.vectorizers.resume(id)
        await work(db, ai)
    assert await one(db, "SELECT count(*) FROM blog_embedding") == 41


@pytest.mark.parametrize("status", [400, 405, 422])
async def test_a_refusal_of_everything_is_the_providers(db: Database, status: int) -> None:
    await blog(db, 10)
    id = await make(db, provider="openai", model="m")
    async with serving() as provider, asking(db, provider) as ai:
        provider.answer = lambda _: (status, "application/json", b'{"error": {"message": "not today"}}')
        await work(db, ai)
    [state] = await db.vectorizers.status(id)
    assert (state["state"], state["pending"]) == ("deferred", 10)
    assert "not today" in state["defer_reason"]
    assert await db.vectorizers.errors(id) == []


async def test_a_text_that_garbles_answers_holds_up_no_other_and_costs_no_try(
    db: Database, steered: Steered
) -> None:
    await blog(db, 8)
    id = await make(db)

    def garble(texts: Sequence[str]) -> None:
        if "body 5" in texts:
            error = Malformed("steered", "7 vectors for 8 texts", "")
            error.of_request = False
            raise error

    steered.before = garble
    await work(db, steered)
    assert await one(db, "SELECT count(*) FROM blog_embedding_store") == 7
    [status] = await db.vectorizers.status(id)
    assert (status["state"], status["pending"]) == ("deferred", 1)
    assert await db.vectorizers.errors(id) == []


async def test_what_was_embedded_before_the_trouble_is_kept(db: Database, steered: Steered) -> None:
    await blog(db, 8)
    await db.execute("UPDATE blog SET body = 'poison' WHERE id = 8")
    id = await make(db)
    whole: list[Sequence[str]] = []

    def trouble(texts: Sequence[str]) -> None:
        whole.append(texts)
        if len(whole) == 4:  # the batch, the harmless text, the first half, and now
            raise ConnectionRefused

    steered.before = trouble
    await work(db, steered)
    assert await one(db, "SELECT count(*) FROM blog_embedding_store") == 4
    [status] = await db.vectorizers.status(id)
    assert (status["state"], status["pending"], status["failed"]) == ("deferred", 4, 0)


class _Refused(Unsuitable):
    of_request = False


ConnectionRefused = _Refused("steered", "connection refused")


@pytest.mark.parametrize("everything", [True, False])
async def test_vectors_that_are_no_numbers(db: Database, steered: Steered, everything: bool) -> None:
    await blog(db)
    id = await make(db)

    class Broken(Steered):
        async def embed(self, texts: Sequence[str], *args: Any, **options: Any) -> Any:
            made = await super().embed(texts, *args, **options)
            for n, text in enumerate(texts):
                made.vectors[n, 0] = float("nan") if everything or text == "body 2" else 0
            return made

    await work(db, Broken())
    [status] = await db.vectorizers.status(id)
    expected = ("deferred", 3, 0) if everything else ("working", 1, 1)
    assert (status["state"], status["pending"], status["retrying"]) == expected


async def test_a_row_given_up_keeps_no_old_vector(db: Database, steered: Steered) -> None:
    await blog(db)
    await db.execute("INSERT INTO shiftboss.settings VALUES ('vectorizer_backoff', '0')")
    id = await make(db)
    await work(db, steered)
    await db.execute("UPDATE blog SET body = 'poison' WHERE id = 2")
    await work(db, steered)
    [error] = await db.vectorizers.errors(id)
    assert error["state"] == "failed"
    assert await one(db, "SELECT array_agg(id ORDER BY id) FROM blog_embedding") == [1, 3]
    found = await db.vectorizers.search(id, vector_of("body 2"))
    assert {row["key"]["id"] for row in found} == {"1", "3"}


async def test_dimensions_are_sent_where_they_are_not_the_models_own(db: Database) -> None:
    await blog(db)
    for model, dimensions in (("text-embedding-3-small", 512), ("text-embedding-3-large", 3072), ("own", 24)):
        await make(db, name=model, provider="openai", model=model, dimensions=dimensions)
    async with serving() as provider, asking(db, provider) as ai:
        provider.widths = {"text-embedding-3-large": 3072}
        await work(db, ai)
        sent = {request["model"]: request.get("dimensions") for request in provider.requests}
    assert sent == {"text-embedding-3-small": 512, "text-embedding-3-large": None, "own": 24}
    assert [row["pending"] for row in await db.vectorizers.status()] == [0, 0, 0]


async def test_a_server_that_refuses_dimensions_is_asked_without(db: Database) -> None:
    await blog(db)
    id = await make(db, provider="openai", model="bge-small")

    def refuse(request: dict[str, Any]) -> tuple[int, str, bytes] | None:
        if "dimensions" in request:
            return 400, "application/json", orjson.dumps({"error": {"message": "no matryoshka"}})
        return None

    async with serving() as provider, asking(db, provider) as ai:
        provider.answer, provider.widths = refuse, {"bge-small": 8}
        await work(db, ai)
    assert await db.vectorizers.pending(id) == 0
    assert await one(db, "SELECT count(*) FROM blog_embedding") == 3


async def test_a_vectorizer_has_an_address_and_a_key_of_its_own(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blog(db)
    async with serving() as provider, serving() as other, asking(db, provider) as ai:
        monkeypatch.setattr(ai._builder, "_environment", {"OTHER_API_KEY": "secret", "HOME": "/root"})
        here = await make(db, name="here", provider="openai", model="m")
        there = await make(
            db,
            name="there",
            provider="openai",
            model="m",
            base_url=f"{other.url}/v1",
            api_key_name="OTHER_API_KEY",
        )
        keyless = await make(db, name="keyless", provider="openai", model="n", base_url=f"{other.url}/v1")
        unset = await make(db, name="unset", provider="openai", model="m", api_key_name="UNSET_API_KEY")
        odd = await make(db, name="odd", provider="openai", model="m", api_key_name="HOME")
        await work(db, ai)
        assert {request["key"] for request in provider.requests} == {"Bearer k"}
        keys = {request["model"]: request["key"] for request in other.requests}
        assert keys == {"m": "Bearer secret", "n": "Bearer none"}
    states = {row["id"]: row for row in await db.vectorizers.status()}
    assert [states[id]["pending"] for id in (here, there, keyless)] == [0, 0, 0]
    assert "UNSET_API_KEY is not set" in states[unset]["defer_reason"]
    assert "not a valid name for a key variable" in states[odd]["defer_reason"]


async def test_changing_the_address_embeds_nothing_anew(db: Database) -> None:
    await blog(db)
    id = await make(db, provider="openai", model="m")
    assert await db.vectorizers.update(id, base_url="http://127.0.0.1:9/v1") == id
    assert (await db.vectorizers.get(id)).base_url == "http://127.0.0.1:9/v1"
    await db.vectorizers.update(id, base_url="")
    assert (await db.vectorizers.get(id)).base_url is None


async def test_errors_are_encrypted(db: Database, steered: Steered) -> None:
    await blog(db, 4)
    await db.execute("UPDATE blog SET body = 'poison' WHERE id = 4")
    id = await make(db)
    with keys(new_key()):
        await work(db, steered)
        [error] = await db.vectorizers.errors(id)
        await db.vectorizers.defer(id, timedelta(minutes=1), f"no {SECRET}")
        [status] = await db.vectorizers.status(id)
        assert (error["reason"], status["defer_reason"]) == (
            "steered: one of the texts is refused",
            f"no {SECRET}",
        )
    stored = await one(db, "SELECT e.reason || v.defer_reason FROM ai._vectorizer_error e, ai.vectorizer v")
    assert stored.count("$enc:") == 2
