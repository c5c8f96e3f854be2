"""From a changed row to its vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.errors import Unavailable
from shiftboss.extensions.vectorizer import load, run
from shiftboss.extensions.vectorizer.run import VectorizerRun
from shiftboss.extensions.vectorizer.search import search
from shiftboss.extensions.vectorizer.worker import VectorizerWorker
from shiftboss.model.errors import DatabaseUnavailable, Defer
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, vector_of, work

CHUNKS = "SELECT id, chunk FROM blog_embedding_store ORDER BY id, chunk_seq"


async def chunks(db: Database) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for row in await db.fetch(CHUNKS):
        found.setdefault(row["id"], []).append(row["chunk"])
    return found


async def test_rows_become_vectors_and_the_view_joins_them(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    assert await db.vectorizers.pending(id) == 3
    await work(db, steered)
    assert await db.vectorizers.pending(id) == 0
    rows = await db.fetch(
        "SELECT id, title, chunk_seq, chunk, embedding::text FROM blog_embedding ORDER BY id"
    )
    assert [(row["id"], row["title"], row["chunk_seq"], row["chunk"]) for row in rows] == [
        (n, f"title {n}", 0, f"body {n}") for n in (1, 2, 3)
    ]
    stored = np.array([float(part) for part in rows[0]["embedding"].strip("[]").split(",")], np.float32)
    assert (stored == vector_of("body 1")).all()


async def test_changes_of_every_kind_are_followed(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    await db.execute("INSERT INTO blog VALUES (4, 't', 'new')")
    await db.execute("UPDATE blog SET body = 'other' WHERE id = 1")
    await db.execute("UPDATE blog SET body = NULL WHERE id = 3")
    await db.execute(
        "INSERT INTO blog VALUES (2, 't', 'upserted') ON CONFLICT (id) DO UPDATE SET body = 'upserted'"
    )
    assert await db.vectorizers.pending(id) == 4
    await work(db, steered)
    assert await chunks(db) == {1: ["other"], 2: ["upserted"], 4: ["new"]}


async def test_an_update_elsewhere_queues_nothing(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    await work(db, steered)
    await db.execute("UPDATE blog SET hits = hits + 1, title = 'x'")
    await db.execute("UPDATE blog SET body = body")
    assert await db.vectorizers.pending(id) == 0


async def test_deletes_truncates_and_key_changes_take_vectors_away(db: Database, steered: Steered) -> None:
    await blog(db, 5)
    id = await make(db)
    await work(db, steered)
    await db.execute("DELETE FROM blog WHERE id = 5")
    assert (await chunks(db)).keys() == {1, 2, 3, 4}
    assert await db.vectorizers.pending(id) == 0
    await db.execute("UPDATE blog SET id = 40 WHERE id = 4")
    assert (await chunks(db)).keys() == {1, 2, 3}
    await work(db, steered)
    assert (await chunks(db)).keys() == {1, 2, 3, 40}
    await db.execute("UPDATE blog SET id = id + 1 WHERE id = 40")
    await db.execute("INSERT INTO blog VALUES (50, 't', 'b')")
    await db.execute("TRUNCATE blog")
    assert await chunks(db) == {}
    assert await db.vectorizers.pending(id) == 0


async def test_keys_that_change_places_keep_right_vectors(db: Database, steered: Steered) -> None:
    await db.execute("CREATE TABLE blog (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, body text)")
    await db.execute("INSERT INTO blog VALUES (1, 'one'), (2, 'two'), (3, 'same'), (4, 'same')")
    await make(db)
    await work(db, steered)
    await db.execute("UPDATE blog SET id = CASE WHEN id % 2 = 1 THEN id + 1 ELSE id - 1 END")
    await work(db, steered)
    assert await chunks(db) == {1: ["two"], 2: ["one"], 3: ["same"], 4: ["same"]}


async def test_a_delete_above_read_committed_leaves_nothing_behind(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    async with db.transaction() as conn:
        await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await conn.execute("SELECT count(*) FROM blog")
        await work(db, steered)  # commits vectors that the transaction's snapshot does not show
        await conn.execute("DELETE FROM blog WHERE id = 1")
    assert await db.vectorizers.pending(id) == 1
    await work(db, steered)
    assert (await chunks(db)).keys() == {2, 3}


async def test_a_row_edited_while_it_is_embedded_is_done_again(db: Database, steered: Steered) -> None:
    await blog(db)
    await make(db)

    async def edit(texts: Sequence[str]) -> None:
        if "body 1" in texts:
            await db.execute("UPDATE blog SET body = 'edited' WHERE id = 1")
            await db.execute("DELETE FROM blog WHERE id = 2")

    steered.before = edit
    await work(db, steered)
    assert await chunks(db) == {1: ["edited"], 3: ["body 3"]}
    assert len(steered.calls) == 2


async def test_a_change_that_is_not_committed_holds_up_nobody_and_is_done_afterwards(
    db: Database, steered: Steered
) -> None:
    await blog(db)
    id = await make(db)
    async with db.transaction() as conn:
        await conn.execute("UPDATE blog SET body = 'edited' WHERE id = 1")
        await work(db, steered)
        assert await chunks(db) == {n: [f"body {n}"] for n in (1, 2, 3)}
        assert await db.vectorizers.pending(id) == 0
    assert await db.vectorizers.pending(id) == 1
    await work(db, steered)
    assert (await chunks(db))[1] == ["edited"]


async def test_a_bulk_update_after_a_single_one_in_the_same_session_stays_quick(db: Database) -> None:
    """Trigger statements are planned once per session: the plan for one row must do for many."""
    await blog(db, 5000)
    id = await make(db, enqueue_existing=False)
    async with db.transaction() as conn:
        await conn.execute("UPDATE blog SET body = 'x' WHERE id = 1")
        await conn.execute("SET LOCAL statement_timeout = '4s'")  # a nested loop would take ten times that
        await conn.execute("UPDATE blog SET body = body || '.'")
        await conn.execute("DELETE FROM blog WHERE id <= 2500")
    assert await db.vectorizers.pending(id) == 2500


async def test_a_row_counts_once_wherever_it_waits(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    for n in (1, 2):
        await db.execute("UPDATE blog SET body = %s WHERE id < 3", [f"edit {n}"])
    await db.execute("INSERT INTO blog VALUES (4, 't', 'new')")
    await db.execute("UPDATE blog SET body = 'newer' WHERE id = 4")
    assert await db.vectorizers.pending(id) == 4
    await work(db, steered)
    assert sum(len(call) for call in steered.calls) == 4
    assert await chunks(db) == {1: ["edit 2"], 2: ["edit 2"], 3: ["body 3"], 4: ["newer"]}


async def test_long_texts_are_chunked_and_fewer_chunks_replace_more(db: Database, steered: Steered) -> None:
    await blog(db, 1)
    await make(db, chunk_size=40, chunk_overlap=0, template="$title: $chunk")
    text = "The first sentence is here. The second one follows it. And a third."
    await db.execute("UPDATE blog SET body = %s", [text])
    await work(db, steered)
    found = (await chunks(db))[1]
    assert found == [
        "title 1: The first sentence is here.",
        "title 1: The second one follows it. And a third.",
    ]
    await db.execute("UPDATE blog SET body = 'short'")
    await work(db, steered)
    assert await chunks(db) == {1: ["title 1: short"]}


async def test_a_template_alone_gives_the_text(db: Database, steered: Steered) -> None:
    await blog(db, 1)
    id = await make(db, columns=None, template="${title} costs $$5: $body")
    await work(db, steered)
    assert await chunks(db) == {1: ["title 1 costs $5: body 1"]}
    await db.execute("UPDATE blog SET title = 'T'")
    assert await db.vectorizers.pending(id) == 1


async def test_a_failing_row_goes_to_the_failed_list_without_its_batch(
    db: Database, steered: Steered
) -> None:
    await blog(db, 9)
    await db.execute("INSERT INTO shiftboss.settings VALUES ('vectorizer_backoff', '0')")
    await db.execute("UPDATE blog SET body = 'poison' WHERE id = 4")
    id = await make(db)
    await work(db, steered)
    assert (await chunks(db)).keys() == {1, 2, 3, 5, 6, 7, 8, 9}
    [error] = await db.vectorizers.errors(id)
    assert (error["key"], error["step"], error["attempts"], error["state"]) == (
        {"id": "4"},
        "embed",
        6,
        "failed",
    )
    assert "refused" in error["reason"]
    [status] = await db.vectorizers.status(id)
    assert (status["pending"], status["failed"], status["retrying"]) == (0, 1, 0)
    await db.execute("UPDATE blog SET title = 'x' WHERE id = 4")
    assert await db.vectorizers.retry(id) == 1
    assert await db.vectorizers.pending(id) == 1
    await db.execute("UPDATE blog SET body = 'cured' WHERE id = 4")
    await work(db, steered)
    assert (await chunks(db))[4] == ["cured"]
    assert await db.vectorizers.errors(id) == []


async def test_a_failed_try_waits_longer_each_time(db: Database, steered: Steered) -> None:
    await blog(db, 1)
    await db.execute("UPDATE blog SET body = 'poison'")
    id = await make(db)
    waits = []
    for attempt in (1, 2, 3):
        await db.execute("UPDATE ai._queue_1 SET due_at = now()")
        await work(db, steered)
        [error] = await db.vectorizers.errors(id)
        assert (error["attempts"], error["state"]) == (attempt, "retrying")
        waits.append(await one(db, "SELECT extract(epoch FROM due_at - clock_timestamp()) FROM ai._queue_1"))
    assert 3 < waits[0] < 6.1 < waits[1] < 12.1 < waits[2] < 24.1


async def test_a_429_defers_the_vectorizer_and_costs_no_try(db: Database, steered: Steered) -> None:
    await blog(db, 600)
    id = await make(db, batch_size=100)

    def too_many(texts: Sequence[str]) -> None:
        if len(steered.calls) > 2:
            raise Defer("rate limited", 60)

    steered.before = too_many
    await work(db, steered)
    [status] = await db.vectorizers.status(id)
    assert (status["state"], status["defer_reason"], status["failed"]) == ("deferred", "rate limited", 0)
    assert status["pending"] == 400
    assert await one(db, "SELECT count(*) FROM ai._queue_1 WHERE due_at <= clock_timestamp()") == 400
    assert await db.vectorizers.due() == []
    steered.before = None
    await db.vectorizers.resume(id)
    await work(db, steered)
    assert await db.vectorizers.pending(id) == 0


async def test_a_broken_provider_holds_up_only_its_own_vectorizer(db: Database) -> None:
    await blog(db)

    class Half(Steered):
        async def embed(
            self, texts: Sequence[str], model: str | None = None, provider: str | None = None, **_: Any
        ) -> Any:
            if provider == "ollama":
                raise Unavailable("ollama", "connection refused")
            return await super().embed(texts, model, provider)

    broken = await make(db, name="broken", provider="ollama")
    sound = await make(db, name="sound")
    await work(db, Half())
    assert await db.vectorizers.pending(sound) == 0
    [status] = await db.vectorizers.status(broken)
    assert (status["state"], status["pending"]) == ("deferred", 3)
    assert "connection refused" in status["defer_reason"]


async def test_wrong_dimensions_are_told_and_nothing_is_written(db: Database) -> None:
    await blog(db)
    id = await make(db)
    await work(db, Steered(dimensions=4))
    [status] = await db.vectorizers.status(id)
    assert "returns 4 dimensions, the vectorizer has 8" in status["defer_reason"]
    assert status["pending"] == 3


async def test_two_workers_share_one_vectorizer(db: Database) -> None:
    await blog(db, 2000)
    id = await make(db, batch_size=50)
    one_, two = Steered(), Steered()
    async with await Database.open(db.url) as other:
        await asyncio.gather(work(db, one_), work(other, two))
    assert await db.vectorizers.pending(id) == 0
    texts = [text for embedder in (one_, two) for call in embedder.calls for text in call]
    assert len(texts) == 2000 == len(set(texts))
    assert one_.calls
    assert two.calls
    assert len(await chunks(db)) == 2000


async def test_a_lapsed_claim_is_taken_over_and_the_late_worker_writes_nothing(
    db: Database, steered: Steered
) -> None:
    await blog(db)
    id = await make(db)
    late = await db.vectorizers.claim(id, 10, timedelta(0))
    await work(db, steered)
    assert await db.vectorizers.pending(id) == 0
    stale = np.zeros((3, 8), np.float32)
    assert await db.vectorizers.write(id, late, [["stale"]] * 3, stale) == []
    assert await chunks(db) == {n: [f"body {n}"] for n in (1, 2, 3)}


async def test_the_provider_is_kept_busy_up_to_its_limit(db: Database, steered: Steered) -> None:
    await blog(db, 1000)
    id = await make(db, batch_size=20, concurrency=5)
    steered.before = lambda _: asyncio.sleep(0.02)
    await VectorizerRun(db, steered, await db.vectorizers.get(id))()
    assert steered.most_busy == 5


async def test_search_finds_by_meaning_with_the_vectorizers_own_model(db: Database, ai: AI) -> None:
    await db.execute("CREATE TABLE notes (id int PRIMARY KEY, body text)")
    texts = [
        "The cat sleeps on the warm sofa",
        "Interest rates and the stock market fell",
        "A recipe for bread",
    ]
    for n, text in enumerate(texts):
        await db.execute("INSERT INTO notes VALUES (%s, %s)", [n, text])
    id = await db.vectorizers.create("notes", columns=["body"])
    await work(db, ai)
    found = await search(db, ai, "notes_embedding", "bank and finance news", limit=2)
    assert found[0]["key"] == {"id": "1"}
    assert found[0]["source"]["body"] == texts[1]
    assert found[0]["distance"] < found[1]["distance"]
    assert [row["key"] for row in await search(db, ai, id, "kitten", limit=1)] == [{"id": "0"}]


async def test_progress_is_reported_for_process_and_vectorizer(db: Database, steered: Steered) -> None:
    from shiftboss.worker.tracking import Tracker

    await blog(db)
    await db.execute("UPDATE blog SET body = 'poison' WHERE id = 2")
    id = await make(db)
    tracker = Tracker(db)
    await tracker.start()
    await VectorizerRun(db, steered, await db.vectorizers.get(id), tracker=tracker)()
    await tracker.stop()
    row = await db.fetch_one("SELECT * FROM ai.vectorizer_worker_progress WHERE vectorizer_id = %s", [id])
    assert row
    assert (row["success_count"], row["error_count"]) == (2, 1)
    assert row["last_success_process_id"] == row["last_error_process_id"] == tracker.id
    assert row["last_error_message"].startswith("embed: ")
    process = await db.fetch_one("SELECT * FROM ai.vectorizer_worker_process WHERE id = %s", [tracker.id])
    assert process
    assert (process["success_count"], process["error_count"]) == (2, 1)


@pytest.mark.parametrize("text", ["", "   ", None])
async def test_nothing_to_say_means_no_vector(db: Database, steered: Steered, text: str | None) -> None:
    await blog(db, 1)
    await db.execute("UPDATE blog SET body = %s", [text])
    id = await make(db)
    await work(db, steered)
    assert await chunks(db) == {}
    assert await db.vectorizers.pending(id) == 0
    assert steered.calls == []


async def test_a_provider_slower_than_the_lease_is_asked_once(db: Database, steered: Steered) -> None:
    await blog(db, 6)
    id = await make(db, batch_size=2, concurrency=1)
    steered.before = lambda _: asyncio.sleep(1.2)
    async with asyncio.timeout(30):
        await work(db, steered, lease=0.9)
    assert await db.vectorizers.pending(id) == 0
    assert sorted(text for call in steered.calls for text in call) == [f"body {n}" for n in range(1, 7)]
    assert len(await chunks(db)) == 6


async def test_an_extended_claim_is_still_the_same_claim(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    rows = await db.vectorizers.claim(id, 10, timedelta(0))
    await db.execute("UPDATE blog SET body = 'edited' WHERE id = 2")
    await db.execute("DELETE FROM blog WHERE id = 3")
    kept = await db.vectorizers.extend(id, rows, timedelta(minutes=1))
    assert [row.fields for row in kept] == [["body 1"], ["body 2"]]
    assert await db.vectorizers.claim(id, 10, timedelta(0)) != [], "the edited row has a new entry"
    done = await db.vectorizers.write(id, kept, [["a"], ["b"]], np.zeros((2, 8), np.float32))
    assert done == [kept[0].ticket]


async def test_long_rows_come_in_small_batches_and_few_at_a_time(
    db: Database, steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MAX_CHARACTERS", 4000)
    await db.execute("CREATE TABLE blog (id int PRIMARY KEY, body text)")
    await db.execute("INSERT INTO blog SELECT n, repeat('x', 1000) || n FROM generate_series(1, 40) n")
    id = await make(db, chunking="none", batch_size=10)
    claims = []
    claim = db.vectorizers.claim

    async def counted(id: int, limit: int, lease: timedelta) -> Any:
        claims.append(limit)
        return await claim(id, limit, lease)

    monkeypatch.setattr(db.vectorizers, "claim", counted)
    await work(db, steered)
    assert await db.vectorizers.pending(id) == 0
    assert max(map(len, steered.calls)) == 1
    assert claims[0] == 10
    assert set(claims[1:]) == {3}


async def test_a_row_of_too_many_chunks_is_told(
    db: Database, steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MAX_CHUNKS", 5)
    await blog(db)
    await db.execute("UPDATE blog SET body = repeat('long ', 100) WHERE id = 2")
    id = await make(db, chunking="characters", chunk_size=50, chunk_overlap=0)
    await work(db, steered)
    assert (await chunks(db)).keys() == {1, 3}
    [error] = await db.vectorizers.errors(id)
    assert "10 chunks exceed the maximum of 5" in error["reason"]


async def test_a_lock_on_the_target_costs_no_row_a_try(db: Database, steered: Steered) -> None:
    await blog(db)
    id = await make(db)
    impatient = db.url + ("&" if "?" in db.url else "?") + "options=-c%20lock_timeout%3D300"
    async with await Database.open(impatient) as other, db.transaction() as conn:
        await conn.execute("LOCK TABLE blog_embedding_store IN ACCESS EXCLUSIVE MODE")
        worker = VectorizerWorker(other, steered, once=True)
        await worker.run()
    assert "lock timeout" in worker.errors["blog_embedding"]
    assert await db.vectorizers.errors(id) == []


async def test_what_is_embedded_is_written_though_nothing_more_can_be_claimed(
    db: Database, steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blog(db, 4)
    id = await make(db, batch_size=2)
    claim, claimed, failed = db.vectorizers.claim, [], asyncio.Event()

    async def once(id: int, limit: int, lease: timedelta) -> Any:
        if claimed:
            failed.set()
            raise DatabaseUnavailable("the server is shutting down")
        claimed.extend(await claim(id, 2, lease))
        return claimed

    async def wait(texts: Sequence[str]) -> None:
        await failed.wait()

    steered.before = wait
    monkeypatch.setattr(db.vectorizers, "claim", once)
    with pytest.raises(DatabaseUnavailable):
        await VectorizerRun(db, steered, await db.vectorizers.get(id))()
    assert len(await chunks(db)) == 2
