"""The source changes its shape: columns are renamed and dropped, partitions added."""

from __future__ import annotations

import pytest

from shiftboss.db import Database
from shiftboss.db.migrate import migrate
from shiftboss.model.errors import DatabaseError
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, work

PARTITIONED = "CREATE TABLE blog (id int, day int, body text, PRIMARY KEY (id, day)) PARTITION BY LIST (day)"


async def test_renamed_columns_are_followed_and_no_write_fails(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db, columns=["body"], template="$title $$title ${body}: $chunk")
    await work(db, steered)
    await db.execute('ALTER TABLE blog RENAME body TO "The Text"')
    await db.execute("ALTER TABLE blog RENAME title TO body")  # the name that was another's
    await db.execute("UPDATE blog SET \"The Text\" = 'edited' WHERE id = 1")
    await db.execute("INSERT INTO blog (id, body, \"The Text\") VALUES (4, 'title 4', 'new')")
    await db.execute("DELETE FROM blog WHERE id = 2")
    await work(db, steered)
    assert {row["id"]: row["chunk"] for row in await db.fetch("SELECT id, chunk FROM blog_embedding")} == {
        1: "title 1 $title edited: edited",
        3: "title 3 $title body 3: body 3",
        4: "title 4 $title new: new",
    }
    vectorizer = await db.vectorizers.get(id)
    assert vectorizer.columns == ["The Text"]
    assert vectorizer.template == "${body} $$title ${The Text}: $chunk"
    await db.execute("UPDATE blog SET hits = 1")
    assert await db.vectorizers.pending(id) == 0
    assert await db.vectorizers.update(id, columns=["The Text"], template=vectorizer.template) == id


async def test_renamed_keys_are_followed(db: Database, steered: Steered) -> None:
    await db.execute("CREATE TABLE blog (a int, b int, body text, PRIMARY KEY (a, b))")
    await db.execute("INSERT INTO blog VALUES (1, 10, 'one'), (2, 20, 'poison')")
    await db.execute("INSERT INTO shiftboss.settings VALUES ('vectorizer_backoff', '0')")
    id = await make(db)
    await work(db, steered)
    await db.execute("ALTER TABLE blog RENAME a TO c")
    await db.execute("ALTER TABLE blog RENAME b TO a")
    await db.execute("UPDATE blog SET body = 'eins' WHERE c = 1")
    await work(db, steered)
    rows = await db.fetch("SELECT c, a, chunk FROM blog_embedding_store")
    assert [tuple(row.values()) for row in rows] == [(1, 10, "eins")]
    [error] = await db.vectorizers.errors(id)
    assert error["key"] == {"c": "2", "a": "20"}
    assert await db.vectorizers.retry(id) == 1
    await db.execute("UPDATE blog SET c = 3 WHERE c = 1")
    await db.execute("DELETE FROM blog WHERE c = 2")
    await work(db, steered)
    assert await one(db, "SELECT array_agg(c) FROM blog_embedding_store") == [3]


async def test_a_renamed_column_of_a_partitioned_table_is_followed(db: Database, steered: Steered) -> None:
    await db.execute(PARTITIONED)
    await db.execute("CREATE TABLE blog_1 PARTITION OF blog FOR VALUES IN (1)")
    await db.execute("INSERT INTO blog VALUES (1, 1, 'one'), (2, 1, 'two')")
    id = await make(db)
    await work(db, steered)
    await db.execute("ALTER TABLE blog RENAME body TO words")
    await db.execute("UPDATE blog_1 SET words = 'eins' WHERE id = 1")
    await db.execute("DELETE FROM blog WHERE id = 2")
    assert await db.vectorizers.pending(id) == 2
    await work(db, steered)
    assert await one(db, "SELECT array_agg(chunk) FROM blog_embedding_store") == ["eins"]


async def test_a_dropped_column_is_told_with_what_to_do(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    await db.execute("ALTER TABLE blog DROP COLUMN body CASCADE")
    await db.execute("UPDATE blog SET title = 'x' WHERE id = 1")
    await db.execute("INSERT INTO blog VALUES (4, 'title 4')")
    await work(db, steered)
    [status] = await db.vectorizers.status(id)
    assert status["state"] == "column dropped"
    assert f"ai.update_vectorizer({id}, columns =>" in status["trouble"]
    with pytest.raises(DatabaseError, match='has no column "body"'):
        await db.vectorizers.update(id, chunk_size=50)
    await db.vectorizers.update(id, columns=["title"])
    await work(db, steered)
    [status] = await db.vectorizers.status(id)
    assert (status["state"], status["trouble"]) == ("idle", None)
    assert await one(db, "SELECT array_agg(chunk ORDER BY id) FROM blog_embedding_store") == [
        "x",
        "title 2",
        "title 3",
        "title 4",
    ]


async def test_a_partition_added_later_may_be_truncated(db: Database, steered: Steered) -> None:
    await db.execute(PARTITIONED)
    await db.execute("CREATE TABLE blog_1 PARTITION OF blog FOR VALUES IN (1)")
    await db.execute("INSERT INTO blog VALUES (1, 1, 'one')")
    id = await make(db)
    await db.execute("CREATE TABLE blog_2 PARTITION OF blog FOR VALUES IN (2)")
    await db.execute("INSERT INTO blog VALUES (2, 2, 'two')")
    await work(db, steered)
    await db.execute("TRUNCATE blog_2")
    left = "SELECT array_agg(id) FROM blog_embedding_store"
    assert await one(db, left) == [1]
    await db.execute("CREATE TABLE blog_3 PARTITION OF blog FOR VALUES IN (3)")
    await db.execute("INSERT INTO blog VALUES (3, 3, 'three')")
    await db.execute("TRUNCATE blog_3")  # before any worker saw the partition
    await work(db, steered)
    assert await one(db, left) == [1]
    assert await db.vectorizers.pending(id) == 0


async def test_a_column_whose_place_in_the_alphabet_changes_keeps_its_values(
    db: Database, steered: Steered
) -> None:
    await blog(db)
    await make(db, columns=["body"], template="$title / $chunk")
    await work(db, steered)
    await db.execute("ALTER TABLE blog RENAME body TO wording")
    await db.execute("UPDATE blog SET wording = 'edited' WHERE id = 1")
    await work(db, steered)
    assert await one(db, "SELECT chunk FROM blog_embedding_store WHERE id = 1") == "title 1 / edited"


@pytest.mark.parametrize("partitioned", [False, True])
async def test_a_renamed_target_is_still_written_to(
    db: Database, steered: Steered, partitioned: bool
) -> None:
    if partitioned:
        await db.execute(PARTITIONED)
        await db.execute("CREATE TABLE blog_1 PARTITION OF blog FOR VALUES IN (1)")
        await db.execute("INSERT INTO blog SELECT n, 1, 'body ' || n FROM generate_series(1, 4) n")
    else:
        await blog(db, 4)
    await make(db)
    await work(db, steered)
    await db.execute("CREATE SCHEMA elsewhere")
    await db.execute("ALTER TABLE blog_embedding_store RENAME TO vectors")
    await db.execute("ALTER TABLE vectors SET SCHEMA elsewhere")
    await db.execute("DELETE FROM blog WHERE id = 1")
    await db.execute("UPDATE blog SET id = 20 WHERE id = 2")
    await work(db, steered)
    ids = "SELECT array_agg(id ORDER BY id) FROM elsewhere.vectors"
    assert await one(db, ids) == [3, 4, 20]
    await db.execute("DELETE FROM blog WHERE id = 3")
    assert await one(db, ids) == [4, 20], "the triggers know the new name by now"


async def test_a_dropped_target_is_told_and_hurts_no_writer(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    await db.execute("DROP TABLE blog_embedding_store CASCADE")
    await db.execute("UPDATE blog SET body = 'x' WHERE id = 1")
    await db.execute("UPDATE blog SET id = 20 WHERE id = 2")
    await db.execute("DELETE FROM blog WHERE id = 3")
    await db.execute("TRUNCATE blog")
    await work(db, steered)
    [status] = await db.vectorizers.status(id)
    assert status["state"] == "target dropped"
    assert "drop_vectorizer" in status["trouble"]
    await db.vectorizers.drop(id, drop_all=True)
    assert await db.vectorizers.status() == []


async def test_an_older_vectorizer_is_brought_up_to_date_once(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await db.execute("UPDATE ai.vectorizer SET build = 2")
    await migrate(db.url)
    assert await one(db, "SELECT build FROM ai.vectorizer WHERE id = %s", id) == 4
    await work(db, steered)
    await db.execute("DELETE FROM blog WHERE id = 1")
    assert await one(db, "SELECT count(*) FROM blog_embedding_store") == 2
