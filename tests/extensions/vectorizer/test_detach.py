"""Source changes that triggers and view prevent: detach, change, attach; vectors are kept."""

from __future__ import annotations

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError
from tests import servers
from tests.conftest import admin, as_superuser
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, work

TYPE = (
    "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s"
)


async def change(db: Database, *statements: str) -> None:
    """In one transaction, as a migration tool would."""
    async with db.transaction() as conn:
        await conn.execute("SELECT ai.detach_vectorizer('blog_embedding')")
        for statement in statements:
            await conn.execute(statement)
        await conn.execute("SELECT ai.attach_vectorizer('blog_embedding')")


async def test_a_wider_key_keeps_every_vector(db: Database, steered: Steered) -> None:
    await blog(db, 5)
    await db.execute("INSERT INTO shiftboss.settings VALUES ('vectorizer_backoff', '0')")
    id = await make(db)
    await db.execute("UPDATE blog SET body = 'poison' WHERE id = 5")
    await work(db, steered)
    await db.execute("UPDATE blog SET body = 'waiting' WHERE id = 4")
    calls = len(steered.calls)
    with pytest.raises(DatabaseError, match=r"used by a view|in a trigger"):
        await db.execute("ALTER TABLE blog ALTER id TYPE bigint")
    await change(db, "ALTER TABLE blog ALTER id TYPE bigint", "ALTER TABLE blog ALTER body TYPE varchar(900)")
    for table, column in (("blog_embedding_store", "id"), ("ai._queue_1", "k1"), ("blog_embedding", "id")):
        assert await one(db, TYPE, table, column) == "bigint"
    assert await db.vectorizers.pending(id) == 1
    assert await one(db, "SELECT count(*) FROM blog_embedding") == 4
    await db.execute("INSERT INTO blog VALUES (3000000000, 't', 'far'); DELETE FROM blog WHERE id = 1")
    await work(db, steered)
    assert sorted(text for call in steered.calls[calls:] for text in call) == ["far", "waiting"]
    assert await one(db, "SELECT array_agg(id ORDER BY id) FROM blog_embedding") == [2, 3, 4, 3000000000]
    assert await db.vectorizers.retry(id) == 1


async def test_columns_can_be_dropped_and_grants_stay(db: Database, steered: Steered) -> None:
    await blog(db)
    await make(db)
    await work(db, steered)
    await db.execute("GRANT SELECT ON blog_embedding TO PUBLIC")
    await change(db, "ALTER TABLE blog DROP COLUMN hits", "ALTER TABLE blog RENAME body TO words")
    assert await one(db, "SELECT has_table_privilege('public', 'blog_embedding', 'SELECT')")
    [row] = await db.fetch("SELECT * FROM blog_embedding WHERE id = 1")
    assert list(row) == ["id", "title", "words", "chunk_seq", "chunk", "embedding"]
    await db.execute("UPDATE blog SET words = 'new' WHERE id = 1")
    await work(db, steered)
    assert await one(db, "SELECT chunk FROM blog_embedding WHERE id = 1") == "new"


async def test_an_embedded_column_can_not_be_lost_unnoticed(db: Database, steered: Steered) -> None:
    await blog(db)
    await make(db)
    with pytest.raises(DatabaseError, match='has no column "body"'):
        await change(db, "ALTER TABLE blog DROP COLUMN body")
    await work(db, steered)
    assert await one(db, "SELECT count(*) FROM blog_embedding") == 3


async def test_another_table_takes_the_place_of_a_dropped_one(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    await db.execute("SELECT ai.detach_vectorizer(%s::int)", [id])
    [status] = await db.vectorizers.status(id)
    assert status["state"] == "detached"
    assert "attach_vectorizer" in status["trouble"]
    await db.execute("DROP TABLE blog")
    assert await one(db, "SELECT count(*) FROM blog_embedding_store") == 3
    await work(db, steered)
    await db.execute("CREATE TABLE posts (id int PRIMARY KEY, body text, lang text)")
    await db.execute("INSERT INTO posts VALUES (2, 'body 2', 'en'), (3, 'changed', 'en')")
    await db.execute("SELECT ai.attach_vectorizer('blog_embedding', source => 'posts')")
    assert await db.vectorizers.pending(id) == 2
    await work(db, steered)
    rows = await db.fetch("SELECT id, chunk, lang FROM blog_embedding ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(2, "body 2", "en"), (3, "changed", "en")]


async def test_what_changed_while_nobody_looked_is_embedded_anew(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    await db.execute("SELECT ai.detach_vectorizer(%s::int)", [id])
    await db.execute("UPDATE blog SET body = 'unseen' WHERE id = 1; DELETE FROM blog WHERE id = 2")
    await db.execute("SELECT ai.attach_vectorizer(%s::int)", [id])
    await work(db, steered)
    rows = await db.fetch("SELECT id, chunk FROM blog_embedding_store ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(1, "unseen"), (3, "body 3")]


async def test_a_view_lost_with_a_column_comes_back_with_the_next_update(
    db: Database, steered: Steered
) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    await db.execute("ALTER TABLE blog DROP COLUMN body CASCADE")
    await db.vectorizers.update(id, columns=["title"])
    await work(db, steered)
    assert await one(db, "SELECT count(*) FROM blog_embedding") == 3


async def test_no_op_updates_after_a_rename_queue_nothing(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db, columns=["body", "title"])
    await work(db, steered)
    await db.execute("ALTER TABLE blog RENAME body TO words")
    await db.execute("UPDATE blog SET hits = hits + 1")
    await db.execute("UPDATE blog SET words = words")
    assert await db.vectorizers.pending(id) == 0
    await db.execute("UPDATE blog SET words = 'changed' WHERE id = 2")
    await db.execute("UPDATE blog SET title = 'changed' WHERE id = 3")
    assert await db.vectorizers.pending(id) == 2


async def test_chunks_are_as_visible_as_their_rows(db: Database, steered: Steered) -> None:
    await blog(db)
    role = "reader_" + db.url.rpartition("_")[2]
    home = await one(db, "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'blog'::regclass")
    admin(db.url, f"CREATE ROLE {role} ROLE {servers.TESTER}")
    await db.execute(f"GRANT USAGE ON SCHEMA {home} TO {role}")
    await db.execute("CREATE POLICY own ON blog USING (id = 1)")
    before = await make(db, name="before")
    await db.execute("ALTER TABLE blog ENABLE ROW LEVEL SECURITY")
    after = await make(db, name="after")
    await work(db, steered)  # what was made before is brought up to date as its run begins
    await db.execute(f"GRANT SELECT ON blog, before, before_store, after, after_store TO {role}")
    await db.vectorizers.update(after, columns=["title"])
    await db.vectorizers.update(before, model="other", dimensions=8)
    await work(db, steered)
    async with db.transaction() as conn:
        await conn.execute(f"SET LOCAL ROLE {role}")
        for relation in ("before", "before_store", "after", "after_store"):
            rows = await (await conn.execute(f"SELECT id FROM {home}.{relation}")).fetchall()
            assert rows == [{"id": 1}], relation
    assert await one(db, "SELECT count(*) FROM after") == 3
    async with await Database.open(as_superuser(db.url)) as superuser:
        await superuser.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_number_is_an_id_and_a_text_a_name_first(db: Database, steered: Steered) -> None:
    await blog(db)
    first = await make(db)
    named = await make(db, name=str(first))
    await db.execute("SELECT ai.pause_vectorizer(%s::int)", [first])
    assert [row["state"] for row in await db.vectorizers.status()] == ["paused", "working"]
    assert (await db.vectorizers.get(first)).id == first
    assert (await db.vectorizers.get(str(first))).id == named
    await db.execute("SELECT ai.drop_vectorizer(%s::int, true)", [first])
    assert [row["id"] for row in await db.vectorizers.status()] == [named]
    with pytest.raises(DatabaseError, match="no vectorizer with id"):
        await db.vectorizers.drop(first)
    await db.vectorizers.drop(str(named), drop_all=True)


async def test_dropping_prints_nothing(db: Database, steered: Steered) -> None:
    await db.execute(
        "CREATE TABLE blog (id int, day int, body text, PRIMARY KEY (id, day)) PARTITION BY LIST (day)"
    )
    await db.execute("CREATE TABLE blog_1 PARTITION OF blog FOR VALUES IN (1)")
    await make(db)
    heard: list[str] = []
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        conn.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
        await conn.execute("SELECT ai.drop_vectorizer('blog_embedding', true)")
    assert heard == []
    assert (
        await one(
            db, "SELECT count(*) FROM pg_trigger WHERE tgrelid IN ('blog'::regclass, 'blog_1'::regclass)"
        )
        == 0
    )


async def test_temporary_tables_are_refused(db: Database) -> None:
    async with db.transaction() as conn:
        await conn.execute("CREATE TEMP TABLE fleeting (id int PRIMARY KEY, body text)")
        with pytest.raises(psycopg.Error, match="is a temporary table"):
            await conn.execute("SELECT ai.create_vectorizer('fleeting', columns => '{body}')")
