"""Any table with a primary key, and clear errors for everything else."""

from __future__ import annotations

from urllib.parse import urlsplit
from uuid import UUID

import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError
from tests.conftest import admin, as_superuser
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, work

QUOTED = '"My Schema"."Blog ""Posts"""'


async def test_a_composite_key_in_another_schema_with_quoted_names(db: Database, steered: Steered) -> None:
    await db.execute('CREATE SCHEMA "My Schema"')
    await db.execute(
        f'CREATE TABLE {QUOTED} ("Post Id" uuid, lang text, "The Body" text, chunk text, k1 int, '
        'PRIMARY KEY (lang, "Post Id"))'
    )
    key = UUID(int=7)
    await db.execute(f"INSERT INTO {QUOTED} VALUES (%s, %s, 'text', 'own', 1)", [key, "en'x"])
    name = 'It\'s 100 % "mine"'
    template = "${The Body} / $lang / $chunk"
    id = await make(db, QUOTED, name=name, columns=["The Body"], template=template)
    await work(db, steered)
    view = '"My Schema"."It\'s 100 % ""mine"""'
    [row] = await db.fetch(f"SELECT * FROM {view}")
    assert (row["Post Id"], row["chunk"], row["source_chunk"]) == (key, "text / en'x / text", "own")
    await db.execute(f"UPDATE {QUOTED} SET \"The Body\" = 'poison'")
    await db.execute("INSERT INTO shiftboss.settings VALUES ('vectorizer_backoff', '0')")
    await work(db, steered)
    [error] = await db.vectorizers.errors(id)
    assert error["key"] == {"lang": "en'x", "Post Id": str(key)}
    assert await db.vectorizers.retry(id) == 1
    await db.execute(f"DELETE FROM {QUOTED}")
    assert await db.vectorizers.pending(id) == 0
    assert await db.fetch(f"SELECT * FROM {view}") == []


@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("text", ["it's", 'a "b"', "", "ünï\\,{}"]),
        ("timestamptz", ["2024-02-29 12:00:00.123456+02", "infinity"]),
        ("numeric(10,3)", ["1.5", "1000000.001"]),
        ("date[]", ["{2024-01-01,2024-01-02}", "{}"]),
        ("boolean", ["true", "false"]),
        ("bytea", ["\\x00ff", "\\x"]),
    ],
)
async def test_keys_of_any_type_come_through(
    db: Database, steered: Steered, type: str, values: list[str]
) -> None:
    await db.execute(f"CREATE TABLE blog (id {type} PRIMARY KEY, body text)")
    for value in values:
        await db.execute(f"INSERT INTO blog VALUES (%s::{type}, %s)", [value, value or "empty"])
    id = await make(db)
    await work(db, steered)
    matched = "SELECT count(*) FROM blog_embedding WHERE chunk IN (id::text, body)"
    assert await one(db, matched) == len(values)
    await db.execute("UPDATE blog SET body = body || ' poison'")
    await db.execute("INSERT INTO shiftboss.settings VALUES ('vectorizer_backoff', '0')")
    await work(db, steered)
    assert await db.vectorizers.retry(id) == len(values)


async def test_partitioned_tables_also_when_a_partition_is_changed_directly(
    db: Database, steered: Steered
) -> None:
    await db.execute(
        "CREATE TABLE blog (id int, day int, body text, PRIMARY KEY (id, day)) PARTITION BY LIST (day)"
    )
    await db.execute("CREATE TABLE blog_1 PARTITION OF blog FOR VALUES IN (1)")
    await db.execute("CREATE TABLE blog_2 PARTITION OF blog FOR VALUES IN (2)")
    await db.execute("INSERT INTO blog VALUES (1, 1, 'one'), (2, 2, 'two')")
    id = await make(db)
    await work(db, steered)
    await db.execute("CREATE TABLE blog_3 PARTITION OF blog FOR VALUES IN (3)")
    await db.execute("INSERT INTO blog_3 VALUES (3, 3, 'three')")
    await db.execute("UPDATE blog_1 SET body = 'eins'")
    await db.execute("UPDATE blog_2 SET body = body")
    assert await db.vectorizers.pending(id) == 2
    await db.execute("UPDATE blog SET day = 1 WHERE id = 2")
    await work(db, steered)
    rows = await db.fetch("SELECT id, day, chunk FROM blog_embedding_store ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(1, 1, "eins"), (2, 1, "two"), (3, 3, "three")]
    await db.execute("TRUNCATE blog_1")
    await db.execute("DELETE FROM blog_3")
    assert await one(db, "SELECT count(*) FROM blog_embedding_store") == 0
    assert await db.vectorizers.pending(id) == 0


async def test_writers_need_no_rights_on_queue_or_vectors(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    role = "writer_" + db.url.rpartition("_")[2]
    home = await one(db, "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'blog'::regclass")
    admin(db.url, f"CREATE ROLE {role} ROLE {urlsplit(db.url).username}")
    await db.execute(f"GRANT USAGE ON SCHEMA {home} TO {role}")
    await db.execute(f"GRANT INSERT, UPDATE, DELETE, SELECT, TRUNCATE ON blog TO {role}")
    async with db.transaction() as conn:
        await conn.execute(f"SET LOCAL ROLE {role}")
        await conn.execute(f"UPDATE {home}.blog SET body = 'x', id = id + 10")
        await conn.execute(f"DELETE FROM {home}.blog WHERE id = 11")
    assert await db.vectorizers.pending(id) == 5  # two new keys, three old ones to make sure of
    await work(db, steered)
    assert await one(db, "SELECT count(*) FROM blog_embedding") == 2
    await db.execute(f"REVOKE ALL ON SCHEMA {home} FROM {role}")
    await db.execute(f"REVOKE ALL ON blog FROM {role}")
    admin(db.url, f"DROP ROLE {role}")


async def test_several_vectorizers_follow_one_table(db: Database, steered: Steered) -> None:
    await blog(db)
    one_, two = await make(db, name="one"), await make(db, name="two", columns=["title"])
    await work(db, steered)
    await db.execute("UPDATE blog SET title = 'new'")
    assert (await db.vectorizers.pending(one_), await db.vectorizers.pending(two)) == (0, 3)
    await db.vectorizers.drop("two", drop_all=True)
    await db.execute("UPDATE blog SET title = 'newer', body = 'newer'")
    assert await db.vectorizers.pending(one_) == 3


async def test_dropping_keeps_the_vectors_unless_told(db: Database, steered: Steered) -> None:
    await blog(db)
    await make(db)
    await work(db, steered)
    await db.vectorizers.drop("blog_embedding")
    assert await one(db, "SELECT count(*) FROM blog_embedding") == 3
    assert await one(db, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'blog'::regclass") == 0
    assert await one(db, "SELECT count(*) FROM pg_class WHERE relname LIKE '\\_queue\\_%%'") == 0
    id = await make(db, destination="other_store", view_name="other", if_not_exists=True)
    assert await make(db, if_not_exists=True) == id
    await db.vectorizers.drop(id, drop_all=True)
    assert await one(db, "SELECT to_regclass('other_store') IS NULL AND to_regclass('other') IS NULL")


async def test_a_dropped_source_is_told_and_hurts_nobody(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await db.execute("DROP TABLE blog CASCADE")
    await work(db, steered)
    [status] = await db.vectorizers.status(id)
    assert status["state"] == "source dropped"
    await db.vectorizers.drop(id, drop_all=True)
    assert await db.vectorizers.status() == []


async def test_a_renamed_source_is_still_followed(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await db.execute("ALTER TABLE blog RENAME TO posts")
    await work(db, steered)
    await db.execute("UPDATE posts SET body = 'x' WHERE id = 1")
    assert await db.vectorizers.pending(id) == 1
    await db.execute("TRUNCATE posts")
    assert await one(db, "SELECT count(*) FROM blog_embedding_store") == 0


async def test_a_paused_vectorizer_queues_each_row_once_and_does_nothing(
    db: Database, steered: Steered
) -> None:
    await blog(db)
    id = await make(db, enqueue_existing=False)
    await db.vectorizers.pause(id)
    for n in range(4):
        await db.execute("UPDATE blog SET body = %s", [f"edit {n}"])
    await work(db, steered)
    [status] = await db.vectorizers.status(id)
    assert (status["state"], status["pending"], steered.calls) == ("paused", 3, [])
    await db.vectorizers.resume(id)
    await work(db, steered)
    assert await db.vectorizers.pending(id) == 0


async def test_a_schedule_lets_changes_wait(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db, schedule="1 hour")
    await work(db, steered)
    await db.execute("UPDATE blog SET body = 'x'")
    await work(db, steered)
    assert await db.vectorizers.pending(id) == 3
    async with db.transaction() as conn:
        await conn.execute("SELECT set_config('shiftboss.now', (now() + interval '61 minutes')::text, true)")
        due = await (await conn.execute("SELECT id FROM ai._vectorizers_due()")).fetchall()
    assert due == [{"id": id}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": None}, "neither columns nor template is given"),
        ({"columns": ["nope"]}, 'has no column "nope"'),
        ({"columns": None, "template": "$title $nope"}, 'has no column "nope"'),
        ({"template": "$title"}, "must contain \\$chunk"),
        ({"provider": "openai", "model": "unheard-of", "dimensions": None}, "dimensions of model unheard-of"),
        ({"dimensions": 3000, "index_method": "hnsw"}, "at most 2000 dimensions"),
        ({"chunking": "words"}, "vectorizer_chunking_word"),
        ({"chunk_size": 10, "chunk_overlap": 10}, "vectorizer_overlap_range"),
        ({"batch_size": 0}, "vectorizer_batch_size_range"),
    ],
)
async def test_bad_options_are_refused_and_change_nothing(
    db: Database, options: dict[str, object], message: str
) -> None:
    await blog(db)
    before = await one(db, "SELECT count(*) FROM pg_class")
    with pytest.raises(DatabaseError, match=message):
        await make(db, **options)
    assert await one(db, "SELECT count(*) FROM pg_class") == before
    assert await db.vectorizers.status() == []


async def test_sources_that_can_not_be_followed_are_refused(db: Database) -> None:
    await db.execute("CREATE TABLE nokey (body text)")
    await db.execute("CREATE VIEW aview AS SELECT 1 AS id, 'x' AS body")
    with pytest.raises(DatabaseError, match="has no primary key"):
        await make(db, "nokey")
    with pytest.raises(DatabaseError, match="is not a table"):
        await make(db, "aview")
    with pytest.raises(DatabaseError, match="does not exist"):
        await make(db, "missing")
    await blog(db)
    await make(db)
    with pytest.raises(DatabaseError, match="already exists"):
        await make(db)
    with pytest.raises(DatabaseError, match="there is no vectorizer"):
        await db.vectorizers.drop("missing")


async def test_without_pgvector_the_error_says_what_to_do(db: Database) -> None:
    await blog(db)
    async with await Database.open(as_superuser(db.url)) as superuser:
        await superuser.execute("DROP EXTENSION vector CASCADE")
    with pytest.raises(DatabaseError, match="need the extension vector"):
        await make(db)


async def test_a_million_rows_are_counted_exactly(db: Database) -> None:
    await db.execute("CREATE UNLOGGED TABLE big (id int PRIMARY KEY, body text)")
    await db.execute("INSERT INTO big SELECT n, 'x' FROM generate_series(1, 1000003) n")
    id = await make(db, "big")
    assert (await db.vectorizers.status(id))[0]["pending"] == 1_000_003
    await db.execute("UPDATE big SET body = 'y' WHERE id <= 5")
    await db.execute("DELETE FROM big WHERE id <= 3")
    assert await db.vectorizers.pending(id) == 1_000_000
