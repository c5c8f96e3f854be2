"""Vectorizers over HTTP: create, change and drop, with roles; a clear error without pgvector."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import httpx
import pytest
from tests.conftest import as_superuser

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.vectorizer.worker import VectorizerWorker

V1 = "/api/v1/admin"
AsRole = Callable[[str], Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def source(db: Database) -> str:
    await db.execute("CREATE TABLE public.blog (id int PRIMARY KEY, title text, body text)")
    await db.execute("INSERT INTO public.blog VALUES (1, 'a', 'b'), (2, 'c', 'd')")
    await db.execute("CREATE TABLE public.nokey (body text)")
    return "public.blog"


async def test_a_vectorizer_is_made_changed_and_dropped(api: httpx.AsyncClient, source: str) -> None:
    body = {"source": source, "columns": ["body"], "schedule": "PT1H", "batch_size": 7}
    made = await api.post(f"{V1}/vectorizers", json=body)
    assert made.status_code == 201
    assert (made.json()["name"], made.json()["pending"], made.json()["dimensions"]) == (
        "blog_embedding",
        2,
        256,
    )
    one = f"{V1}/vectorizers/{made.json()['id']}"
    changed = await api.patch(one, json={"columns": ["title"]})
    assert (changed.status_code, changed.json()["state"]) == (200, "updating")
    assert (await api.get(one)).json()["state"] == "updating"
    assert (await api.delete(one, params={"everything": True})).status_code == 204
    assert (await api.get(one)).status_code == 404
    assert (await api.patch(one, json={"columns": ["title"]})).status_code == 404
    assert (await api.delete(one)).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"source": "public.missing"}, 422, "does not exist"),
        ({"source": "public.nokey"}, 422, "has no primary key"),
        ({"columns": ["nope"]}, 422, 'has no column "nope"'),
        ({"columns": None}, 422, "neither columns nor template is given"),
        ({"provider": "openai", "model": "unheard-of"}, 422, "dimensions"),
        ({"destination": "nowhere.store"}, 422, "nowhere"),
        ({"destination": "public.nokey"}, 409, "already exists"),
        ({"batch_size": 0}, 422, "batch_size"),
        ({"index_options": {"m": 1}}, 422, "m = 1"),
        ({"text_search": "klingon"}, 422, "klingon"),
        ({"colour": "red"}, 422, "colour"),
    ],
)
async def test_what_can_not_be_made_is_told_and_makes_nothing(
    api: httpx.AsyncClient, source: str, body: dict[str, object], status: int, words: str
) -> None:
    answer = await api.post(f"{V1}/vectorizers", json={"source": source, "columns": ["body"]} | body)
    assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text
    assert (await api.get(f"{V1}/vectorizers")).json() == []


async def test_search_over_http(api: httpx.AsyncClient, db: Database, source: str) -> None:
    made = await api.post(f"{V1}/vectorizers", json={"source": source, "columns": ["title", "body"]})
    path = f"{V1}/vectorizers/{made.json()['id']}/search"
    async with await AI.open(None, db, environment={}) as ai:
        await VectorizerWorker(db, ai, once=True).run()
    found = (await api.get(path, params={"query": "a b", "limit": 1})).json()
    assert [(hit["key"], hit["chunk"], hit["source"]["title"]) for hit in found] == [
        ({"id": "1"}, "a\nb", "a")
    ]
    assert 0 <= found[0]["distance"] < 1
    filter = json.dumps({"id": {">": 1}})
    hybrid = await api.get(path, params={"query": "a b", "mode": "hybrid", "filter": filter})
    assert [hit["key"] for hit in hybrid.json()] == [{"id": "2"}]
    by_words = await api.get(path, params={"query": "d", "mode": "text"})
    assert [(hit["key"], hit["distance"]) for hit in by_words.json()] == [({"id": "2"}, None)]
    for bad in (
        {"filter": "{"},
        {"filter": "[]"},
        {"filter": '{"nope": 1}'},
        {"mode": "x"},
        {"filter": '{"id": "x"}'},
    ):
        assert (await api.get(path, params={"query": "a", **bad})).status_code == 422, bad
    assert (await api.get(f"{V1}/vectorizers/999/search", params={"query": "a"})).status_code == 404


async def test_a_second_one_of_that_name_is_a_conflict(api: httpx.AsyncClient, source: str) -> None:
    body = {"source": source, "columns": ["body"]}
    first = await api.post(f"{V1}/vectorizers", json=body)
    assert (await api.post(f"{V1}/vectorizers", json=body)).status_code == 409
    again = await api.post(f"{V1}/vectorizers", json=body | {"if_not_exists": True})
    assert again.json()["id"] == first.json()["id"]


async def test_a_viewer_may_look_and_no_more(as_role: AsRole, source: str) -> None:
    operator, viewer = await as_role("operator"), await as_role("viewer")
    made = await operator.post(f"{V1}/vectorizers", json={"source": source, "columns": ["body"]})
    assert made.status_code == 201
    one = f"{V1}/vectorizers/{made.json()['id']}"
    assert (await viewer.get(one)).status_code == 200
    assert (await viewer.post(f"{V1}/vectorizers", json={"source": source, "name": "x"})).status_code == 403
    assert (await viewer.patch(one, json={"batch_size": 5})).status_code == 403
    assert (await viewer.delete(one)).status_code == 403


async def test_without_pgvector_the_answers_say_so(api: httpx.AsyncClient, db: Database, source: str) -> None:
    async with await Database.open(as_superuser(db.url)) as superuser:
        await superuser.execute("DROP SCHEMA journal CASCADE; DROP EXTENSION vector CASCADE")
    body = {"source": source, "columns": ["body"]}
    made = await api.post(f"{V1}/vectorizers", json=body)
    assert made.status_code == 503
    assert "pgvector" in made.json()["hint"]
    for path in (
        "journal",
        "journal/entries",
        "journal/mood?user=u",
        "journal/insights?user=u",
        "journal/search?query=sea",
    ):
        answer = await api.get(f"{V1}/{path}")
        assert (path, answer.status_code) == (path, 503)
        assert "pgvector" in answer.json()["hint"]
    assert (await api.get(f"{V1}/vectorizers")).json() == []
