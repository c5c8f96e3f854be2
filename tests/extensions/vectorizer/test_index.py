"""Vector indexes: methods, options, and builds while other work continues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.migrate import migrate
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.worker import VectorizerWorker
from shiftboss.model.errors import DatabaseError
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, vector_of, work

Eventually = Callable[..., Awaitable[Any]]
DEFINITIONS = (
    "SELECT array_agg(regexp_replace(indexdef, '.* USING ', '') ORDER BY indexname) AS found FROM pg_indexes "
    "WHERE tablename = 'blog_embedding_store' AND indexname LIKE '\\_vectorizer%%'"
)


@pytest.mark.parametrize(
    ("options", "definition"),
    [
        ({"index_method": "hnsw"}, "hnsw (embedding vector_cosine_ops)"),
        (
            {
                "index_method": "hnsw",
                "index_opclass": "vector_l2_ops",
                "index_options": {"m": 8, "ef_construction": 32},
            },
            "hnsw (embedding vector_l2_ops) WITH (m='8', ef_construction='32')",
        ),
        ({"index_method": "ivfflat"}, "ivfflat (embedding vector_cosine_ops) WITH (lists='1')"),
        (
            {"index_method": "ivfflat", "index_opclass": "vector_ip_ops", "index_options": {"lists": 3}},
            "ivfflat (embedding vector_ip_ops) WITH (lists='3')",
        ),
        (
            {"index_method": "hnsw", "index_opclass": "halfvec_cosine_ops"},
            "hnsw (((embedding)::halfvec(8)) halfvec_cosine_ops)",
        ),
    ],
)
async def test_an_index_as_it_was_asked_for_serves_the_search(
    db: Database, steered: Steered, options: dict[str, Any], definition: str
) -> None:
    await blog(db, 60)
    id = await make(db, index_min_rows=50, **options)
    assert (await db.vectorizers.status(id))[0]["index_state"] == "waiting for 50 vectors"
    await work(db, steered)
    assert await one(db, DEFINITIONS) == [definition]
    assert (await db.vectorizers.status(id))[0]["index_state"] == "ready"
    async with db.transaction() as conn:
        await conn.execute("SET LOCAL enable_seqscan = off")
        [found] = await db.vectorizers.search(id, vector_of("body 7"), 1)
    assert found["key"] == {"id": "7"}
    plan = await one(db, "SELECT ai._search_sql(v, true, false, NULL) FROM ai.vectorizer v")
    async with db.transaction() as conn:
        await conn.execute("SET LOCAL enable_seqscan = off")
        await conn.execute(f"PREPARE q (vector, text, jsonb, int, int) AS {plan.replace('%', '%%')}")
        vector = str(vector_of("body 7").tolist())
        told = await (await conn.execute(f"EXPLAIN EXECUTE q ('{vector}', NULL, NULL, 1, 1)")).fetchall()
        await conn.execute("DEALLOCATE q")
    assert "Index Scan using _vectorizer_1_" in str(told)


async def test_index_and_words_change_without_embedding_anew(db: Database, steered: Steered) -> None:
    await blog(db, 20)
    id = await make(db, index_method="hnsw", index_min_rows=0)
    await work(db, steered)
    calls = len(steered.calls)
    change = {"index_options": {"m": 4, "ef_construction": 10}, "text_search": "english"}
    assert await db.vectorizers.update(id, **change) == id
    await work(db, steered)
    assert await one(db, DEFINITIONS) == [
        "hnsw (embedding vector_cosine_ops) WITH (m='4', ef_construction='10')",
        "gin (to_tsvector('english'::regconfig, chunk))",
    ]
    await db.vectorizers.update(id, index_method="none", text_search="")
    await work(db, steered)
    assert await one(db, DEFINITIONS) is None
    assert len(steered.calls) == calls
    assert await db.vectorizers.due() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index_opclass": "cosine"}, "no index_opclass"),
        ({"index_method": "ivfflat", "index_opclass": "vector_l1_ops"}, "IVFFlat has no operator class"),
        ({"index_method": "hnsw", "index_options": {"lists": 3}}, "lists = 3 is not valid"),
        ({"index_method": "hnsw", "index_options": {"m": 1}}, "m = 1 is not valid"),
        ({"index_method": "hnsw", "index_options": {"m": 50, "ef_construction": 60}}, "ef_construction < 2"),
        ({"index_method": "hnsw", "index_opclass": "halfvec_l2_ops", "dimensions": 4001}, "at most 4000"),
        ({"index_min_rows": -1}, "index_min_rows"),
        ({"text_search": "klingon"}, "no text search configuration"),
    ],
)
async def test_options_that_fit_no_index_are_refused(
    db: Database, options: dict[str, Any], message: str
) -> None:
    await blog(db)
    with pytest.raises(DatabaseError, match=message):
        await make(db, **options)


async def test_rows_are_embedded_while_an_index_is_built(
    db: Database, steered: Steered, eventually: Eventually
) -> None:
    await blog(db, 20)
    id = await make(db, index_method="hnsw", index_min_rows=0)

    async def state(expected: str) -> bool:
        [status] = await db.vectorizers.status(id)
        return (status["index_state"], status["pending"]) == (expected, 0)

    async with VectorizerWorker(db, steered, settings=VectorizerSettings(poll=0.2)):
        async with db.transaction() as conn:
            await conn.execute(
                "LOCK TABLE blog_embedding_store IN ROW EXCLUSIVE MODE"
            )  # a build waits for this
            waiting = "waiting for writers before build, 0 %"
            await eventually(lambda: state(waiting))
            await db.execute("UPDATE blog SET body = 'changed' WHERE id = 1")
            await eventually(lambda: _is(db, "changed"))
            assert await state(waiting)
        await eventually(lambda: state("ready"))


async def _is(db: Database, text: str) -> bool:
    return bool(await one(db, "SELECT count(*) FROM blog_embedding_store WHERE chunk = %s", text))


async def test_an_unfinished_index_is_built_again(db: Database, steered: Steered) -> None:
    await blog(db, 20)
    id = await make(db, index_method="hnsw", index_min_rows=1000)
    await work(db, steered)
    await db.vectorizers.update(id, index_min_rows=0)
    statements = await one(db, "SELECT ai._vectorizer_index(%s)", id)
    async with db.transaction() as conn, db.dedicated() as builder:
        await conn.execute("LOCK TABLE blog_embedding_store IN ROW EXCLUSIVE MODE")  # a build waits for this
        await builder.execute("SET statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            await builder.execute(statements[0])
    [unfinished] = await db.fetch("SELECT * FROM ai.vectorizer v, ai._indexes_there(v)")
    assert not unfinished["valid"]
    assert await db.vectorizers.index(id)
    assert (await db.vectorizers.status(id))[0]["index_state"] == "ready"


async def test_an_index_of_an_earlier_version_is_known_again(db: Database, steered: Steered) -> None:
    await blog(db, 20)
    await make(db, index_method="hnsw", index_min_rows=0)
    await db.execute("CREATE INDEX ON blog_embedding_store USING hnsw (embedding vector_cosine_ops)")
    await db.execute("UPDATE ai.vectorizer SET build = 3, view_name = NULL")
    await migrate(db.url)
    await work(db, steered)
    assert await one(db, DEFINITIONS) == ["hnsw (embedding vector_cosine_ops)"]
    assert await one(db, "SELECT view_name FROM ai.vectorizer") is not None
