"""Changes of a vectorizer: the old vectors are used until the new ones are complete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shiftboss.db import Database
from tests.conftest import admin
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, work

COUNT = "SELECT count(*) FROM blog_embedding"
WIDTH = "SELECT atttypmod FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'embedding'"


async def test_a_new_model_is_embedded_beside_the_old_vectors_then_swapped(db: Database) -> None:
    await blog(db, 30)
    id = await make(db, batch_size=10)
    await work(db, Steered())
    admin(db.url, "CREATE ROLE reader_x")
    await db.execute("GRANT SELECT ON blog_embedding, blog_embedding_store TO reader_x")
    assert await db.vectorizers.update(id, model="wide", dimensions=16) != id
    [status] = await db.vectorizers.status(id)
    assert (status["state"], status["pending"], status["update_pending"]) == ("updating", 0, 30)
    serving = asyncio.Event()
    wide = Steered(16)

    async def edit(texts: Sequence[str]) -> None:
        if not serving.is_set():
            serving.set()
            assert await one(db, COUNT) == 30
            assert await one(db, WIDTH, "blog_embedding") == 8
            await db.execute("UPDATE blog SET body = 'edited' WHERE id = 1")
            await db.execute("DELETE FROM blog WHERE id = 2")

    wide.before = edit

    class Both(Steered):
        async def embed(self, texts, model=None, provider=None, **_):  # type: ignore[no-untyped-def]
            return await (wide if model == "wide" else super()).embed(texts, model, provider)

    await work(db, Both())
    assert serving.is_set()
    assert await one(db, WIDTH, "blog_embedding") == 16 == await one(db, WIDTH, "blog_embedding_store")
    assert await one(db, COUNT) == 29
    assert await one(db, "SELECT chunk FROM blog_embedding WHERE id = 1") == "edited"
    [status] = await db.vectorizers.status()
    assert (status["id"], status["state"], status["dimensions"], status["model"]) == (id, "idle", 16, "wide")
    assert await one(db, "SELECT has_table_privilege('reader_x', 'blog_embedding', 'SELECT')")
    assert await one(db, "SELECT has_table_privilege('reader_x', 'blog_embedding_store', 'SELECT')")
    await db.execute("REVOKE ALL ON blog_embedding, blog_embedding_store FROM reader_x")
    admin(db.url, "DROP ROLE reader_x")
    await db.execute("UPDATE blog SET body = 'later' WHERE id = 3")
    assert await db.vectorizers.pending(id) == 1
    await work(db, Both())
    assert await one(db, "SELECT chunk FROM blog_embedding WHERE id = 3") == "later"
    triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'blog'::regclass"
    assert await one(db, triggers) == 5
    assert (
        await one(db, "SELECT count(*) FROM pg_class WHERE relname LIKE '\\_queue\\_%%' AND relkind = 'r'")
        == 1
    )


async def test_the_same_dimensions_keep_the_very_view(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    await db.execute("CREATE VIEW mine AS SELECT chunk FROM blog_embedding")
    await db.vectorizers.update(id, template="$title: $chunk", columns=["body"])
    await work(db, steered)
    assert {row["chunk"] for row in await db.fetch("SELECT * FROM mine")} == {
        f"title {n}: body {n}" for n in (1, 2, 3)
    }


async def test_what_does_not_change_vectors_is_changed_at_once(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    assert await db.vectorizers.update(id, batch_size=7, concurrency=3, columns=["body"]) == id
    vectorizer = await db.vectorizers.get(id)
    assert (vectorizer.batch_size, vectorizer.concurrency) == (7, 3)


async def test_failed_rows_keep_the_old_vectors_serving(db: Database, steered: Steered) -> None:
    await blog(db)
    await db.execute("UPDATE blog SET title = 'poison' WHERE id = 2")
    await db.execute("INSERT INTO shiftboss.settings VALUES ('vectorizer_backoff', '0')")
    id = await make(db)
    await work(db, steered)
    await db.vectorizers.update(id, columns=["title"])
    await work(db, steered)
    [status] = await db.vectorizers.status(id)
    assert (status["state"], status["failed"], status["update_pending"]) == ("updating", 1, 0)
    assert await one(db, COUNT) == 3
    assert await db.vectorizers.swap(id, force=True)
    assert await one(db, COUNT) == 2
    [error] = await db.vectorizers.errors(id)
    assert error["key"] == {"id": "2"}


async def test_a_second_update_takes_the_place_of_the_first(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await db.vectorizers.update(id, columns=["title"])
    await db.vectorizers.update(id, columns=["title", "body"])
    await work(db, steered)
    assert await one(db, "SELECT chunk FROM blog_embedding WHERE id = 1") == "title 1\nbody 1"
    assert await one(db, "SELECT count(*) FROM ai.vectorizer") == 1


async def test_a_large_target_gets_its_index_when_the_queue_is_empty(db: Database, steered: Steered) -> None:
    await blog(db, 50)
    await db.execute("INSERT INTO shiftboss.settings VALUES ('vectorizer_index_rows', '50')")
    await make(db, index_method="hnsw")
    await work(db, steered)
    indexes = await db.fetch("SELECT indexdef FROM pg_indexes WHERE tablename = 'blog_embedding_store'")
    assert sum("USING hnsw (embedding" in row["indexdef"] for row in indexes) == 1
