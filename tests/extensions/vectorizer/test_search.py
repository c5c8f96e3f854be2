"""Search by text: from Python, from SQL alone, by words, by both, with filters, while the model changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Embeddings
from shiftboss.extensions.vectorizer.answer import answer_queries
from shiftboss.extensions.vectorizer.handlers import handlers
from shiftboss.extensions.vectorizer.search import find, search
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.worker import VectorizerWorker
from shiftboss.model.errors import DatabaseError
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, vector_of, work

TEXTS = [
    ("en", 5, "The cat sleeps on the warm sofa"),
    ("en", 9, "Interest rates and the stock market fell"),
    ("de", 2, "A recipe for bread"),
    ("en", 1, "Error E1234 means that the tank is empty"),
]


@pytest.fixture
async def notes(db: Database, ai: AI) -> Database:
    await db.execute("CREATE TABLE notes (id int PRIMARY KEY, lang text, hits int, body text, gone date)")
    for n, (lang, hits, text) in enumerate(TEXTS, 1):
        await db.execute("INSERT INTO notes VALUES (%s, %s, %s, %s)", [n, lang, hits, text])
    await db.vectorizers.create("notes", columns=["body"])
    await work(db, ai)
    return db


def ids(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [int(row["key"]["id"]) for row in rows]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"lang": "en"}, {1, 2, 4}),
        ({"lang": ["de", "fr"]}, {3}),
        ({"hits": {">=": 2, "<": 9}}, {1, 3}),
        ({"lang": "en", "hits": {"<>": 5}}, {2, 4}),
        ({"gone": None}, {1, 2, 3, 4}),
        ({"body": {"ilike": "%CAT%"}}, {1}),
        ({"lang": "e' OR true --"}, set()),
        ({}, {1, 2, 3, 4}),
    ],
)
async def test_filters_on_columns_of_the_source(
    notes: Database, ai: AI, filter: dict[str, Any], expected: set[int]
) -> None:
    for mode in ("vector", "hybrid"):
        found = await search(notes, ai, "notes_embedding", "a cat", mode=mode, filter=filter)  # type: ignore[arg-type]
        assert set(ids(found)) == expected


async def test_filters_that_make_no_sense_are_told(notes: Database, ai: AI) -> None:
    with pytest.raises(DatabaseError, match='has no column "nope"'):
        await search(notes, ai, "notes_embedding", "a cat", filter={"nope": 1})
    with pytest.raises(DatabaseError, match="has no operator"):
        await search(notes, ai, "notes_embedding", "a cat", filter={"hits": {"; DROP": 1}})
    with pytest.raises(DatabaseError, match="filter must be an object"):
        await notes.fetch("SELECT * FROM ai.search_text('notes_embedding', 'cat', filter => '[1]')")


async def test_words_and_meaning_are_fused_by_their_ranks(notes: Database, ai: AI) -> None:
    meant = await search(notes, ai, "notes_embedding", "money E1234", 4)
    both = await search(notes, ai, "notes_embedding", "money E1234", 4, mode="hybrid")
    assert both[0]["key"] == {"id": "4"}
    place = ids(meant).index(4) + 1
    assert both[0]["score"] == pytest.approx(1 / 61 + 1 / (60 + place))
    assert [row["distance"] for row in meant] == sorted(row["distance"] for row in meant)
    assert meant[0]["score"] == pytest.approx(1 / 61)


async def test_by_words_alone_in_one_statement(notes: Database) -> None:
    rows = await notes.fetch("SELECT * FROM ai.search_text('notes_embedding', 'tank -cat')")
    assert (ids(rows), rows[0]["distance"], rows[0]["source"]["hits"]) == ([4], None, 1)
    phrase = "SELECT * FROM ai.search_text('notes_embedding', '\"market stock\"')"
    assert await notes.fetch(phrase) == []


async def test_from_sql_alone_in_two_statements(notes: Database, ai: AI) -> None:
    async with VectorizerWorker(notes, ai, settings=VectorizerSettings(poll=5)):
        asked = await one(notes, "SELECT ai.embed_query('notes_embedding', 'bank and finance news')")
        rows = await notes.fetch(
            'SELECT * FROM ai.search_query(%s, 2, filter => \'{"lang": "en"}\')', [asked]
        )
        assert ids(rows)[0] == 2
        assert rows[0]["distance"] < rows[1]["distance"]
        hybrid = "SELECT * FROM ai.search_query(%s, hybrid => true)"
        assert ids(await notes.fetch(hybrid, [asked]))[0] == 2
        own = "SELECT id FROM notes_embedding ORDER BY embedding <=> ai.query_embedding(%s) LIMIT 1"
        assert await one(notes, own, asked) == 2
    with pytest.raises(DatabaseError, match="there is no request"):
        await notes.execute("SELECT ai.query_embedding(0)")
    waiting = await one(notes, "SELECT ai.embed_query('notes_embedding', 'nobody works')")
    with pytest.raises(DatabaseError, match="no worker has embedded"):
        await notes.execute("SELECT ai.query_embedding(%s, '0.1 s')", [waiting])


async def test_the_fleet_answers_many_questions_by_one_call(
    notes: Database, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    calls, embed = list[int](), AI.embed

    async def counted(self: AI, texts: Sequence[str], *args: Any, **kwargs: Any) -> Embeddings:
        calls.append(len(texts))
        return await embed(self, texts, *args, **kwargs)

    monkeypatch.setattr(AI, "embed", counted)
    ask = "SELECT ai.embed_query('notes_embedding', %s)"
    asked = [await one(notes, ask, word) for word in ("cat", "dog", "boat", "rain")]
    assert await notes.vectorizers.enqueue() == 4
    assert await notes.vectorizers.enqueue() == 0
    member = Member(id="answerer", capabilities=Capabilities(task_types=["vectorizer.answer"]))
    open_ones = "SELECT count(*) FROM tasks WHERE status <> 'Complete'"
    async with Worker(DatabaseSource(notes), handlers, member, WorkerSettings(concurrency=4), db=notes):
        await eventually(lambda: _is_zero(notes, open_ones), 60)
    assert sum(calls) == 4
    assert len(calls) < 4
    for id in asked:
        assert ids(await notes.fetch("SELECT * FROM ai.search_query(%s)", [id]))


async def _is_zero(db: Database, query: str) -> bool:
    return await one(db, query) == 0


async def test_one_question_at_fault_does_not_spoil_the_others(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    asked = [await one(db, "SELECT ai.embed_query(%s::int, %s)", id, word) for word in ("body 1", "poison")]
    errors = await answer_queries(db, steered, ids=asked)
    assert errors[asked[0]] is None
    assert "one of the texts is refused" in str(errors[asked[1]])


async def test_a_question_that_can_not_be_embedded_says_why(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    asked = await one(db, "SELECT ai.embed_query(%s::int, 'poison')", id)
    await work(db, steered)
    with pytest.raises(DatabaseError, match="one of the texts is refused"):
        await db.execute("SELECT ai.search_query(%s)", [asked])


async def test_one_call_from_python(notes: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", notes.url)
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    assert ids(await find("notes_embedding", "kitten", 1)) == [1]


class Models(Steered):
    """Vectors of one model lie along one axis: distances of two models do not mix."""

    async def embed(
        self, texts: Sequence[str], model: str | None = None, provider: str | None = None, **_: Any
    ) -> Embeddings:
        await super().embed(texts, model, provider)
        vectors = np.full((len(texts), 8), 0.001, np.float32)
        vectors[:, 1 if model == "new" else 0] = 1
        return Embeddings(vectors, "local", model or "old")


async def test_no_gap_and_no_mixed_distances_while_the_model_changes(db: Database) -> None:
    await blog(db, 300)
    id = await make(db, batch_size=10)
    models = Models()
    await work(db, models)
    await db.vectorizers.update(id, model="new", dimensions=8)
    models.before = lambda _: asyncio.sleep(0.005)
    switched = asyncio.Event()
    rounds: list[int] = []

    async def ask() -> None:
        while not switched.is_set() or len(rounds) < 20:
            found = await search(db, models, id, "body", limit=5)
            assert len(found) == 5
            assert all(row["distance"] < 0.01 for row in found)
            rounds.append(len(found))

    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ask()) for _ in range(3)]
        await work(db, models)
        switched.set()
    assert all(task.done() for task in asking)
    assert (await db.vectorizers.get(id)).model == "new"


async def test_a_vector_of_replaced_vectors_is_refused(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    old = (await db.vectorizers.get(id)).generation
    asked = await one(db, "SELECT ai.embed_query(%s::int, 'body 1')", id)
    await work(db, steered)
    await db.vectorizers.update(id, model="other", dimensions=8)
    await work(db, steered)
    with pytest.raises(DatabaseError, match="were replaced"):
        await db.vectorizers.search(id, vector_of("body 1"), generation=old)
    with pytest.raises(DatabaseError, match="were replaced"):
        await db.execute("SELECT ai.search_query(%s)", [asked])
