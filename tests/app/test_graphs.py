"""Graphs: results that are passed on, groups, and what runs when they end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shiftboss import App, group
from shiftboss.app import parents
from shiftboss.db import Database
from shiftboss.model.arguments import BadArguments
from shiftboss.model.errors import TaskCancelled, TaskFailed
from shiftboss.worker.context import Context

app = App("graph")


@app.task()
async def fetch(url: str) -> dict[str, str]:
    if url == "broken":
        raise RuntimeError("404")
    return {"text": f"the text of {url}"}


@app.task()
async def count(page: dict[str, str], at_least: int = 0) -> int:
    return max(len(page["text"].split()), at_least)


@app.task()
async def add_up(counts: list[int], start: int = 0) -> int:
    return sum(counts, start)


@app.task()
async def report(ctx: Context) -> list[Any]:
    return list(await parents(ctx))


@app.task()
async def nothing() -> None: ...


async def test_a_chain_passes_each_result_on() -> None:
    async with app, app.worker():
        handle = await app.enqueue(fetch.call("a b").then(count, at_least=3))
        assert await handle.result(timeout=30) == 5
        assert (await handle.look())["params"] == {"at_least": 3, "page": {"text": "the text of a b"}}


async def test_a_group_passes_all_results_on_in_order() -> None:
    pages = group(*(fetch.call("x " * n).then(count) for n in (3, 1, 2)))
    async with app, app.worker():
        results = await app.enqueue(pages)
        assert await results.results(timeout=30) == [6, 4, 5]
        more = group(*(fetch.call("x " * n).then(count) for n in (3, 1, 2)))
        total = await app.enqueue(more.then(add_up, start=100))
        assert await total.result(timeout=30) == 115
        assert (await total.look())["params"]["counts"] == [6, 4, 5]
        assert await (await app.enqueue(group().then(add_up))).result(timeout=30) == 0  # type: ignore[var-annotated]


async def test_what_follows_a_group_when_a_part_fails() -> None:
    async with app, app.worker():
        broken = fetch.options(max_attempts=1).call("broken")
        pages = group(fetch.call("a"), broken)
        last = await app.enqueue(pages.ended(report.call()))
        assert await last.result(timeout=30) == [{"text": "the text of a"}, None]
        strict = group(fetch.call("a"), fetch.options(max_attempts=1).call("broken").then(count))
        both = await app.enqueue(strict)
        outcomes = await both.outcomes(timeout=30)
        assert [one.status for one in outcomes] == ["Complete", "Cancelled"]
        with pytest.raises(TaskCancelled):
            await both.results(timeout=30)


async def test_a_retried_child_gets_the_results_again(db: Database) -> None:
    async with app, app.worker():
        chain = fetch.call("a").then(count.options(max_attempts=1))
        await db.tasks.pause("task_type", "graph.count")
        handle = await app.enqueue(chain)
        await app.handle(chain.before[0].id).result(timeout=30)  # type: ignore[union-attr]
        await db.execute("UPDATE tasks SET params = '{\"page\": {}}' WHERE id = %s", [handle.id])
        await db.tasks.resume("task_type", "graph.count")
        with pytest.raises(TaskFailed):
            await handle.result(timeout=30)
        await handle.retry()
        assert await handle.result(timeout=30) == 4


async def test_parents_that_are_complete_or_live_under_their_key_count_as_well() -> None:
    async with app, app.worker():
        first = await fetch.enqueue("a b")
        await first.result(timeout=30)
        keyed = fetch.options(dedup_key="k", delay=1).call("a b c")
        live = await app.enqueue(keyed)
        other = fetch.options(dedup_key="k").call("another")
        follower = await app.enqueue(other.then(count))
        assert await follower.result(timeout=30) == 6
        assert (await follower.look())["depends_on"] == [live.id]


async def test_from_sql_and_whatever_stands_there(db: Database) -> None:
    for wanted in ({"page": 0}, {"page": "x"}, {"page": [99999999999]}, 7, {"page": {"a": 1}}):
        parent = await app.enqueue(fetch.call("a"))
        await db.execute(
            "INSERT INTO tasks (task_type, params, depends_on, metadata) VALUES ('graph.count', '{}', %s, %s)",
            [[parent.id], json.dumps({"shiftboss.results": wanted})],
        )
    async with app, app.worker():
        await app.handle(parent.id).result(timeout=30)
        query = "SELECT id FROM tasks WHERE task_type = 'graph.count' ORDER BY created_at"
        outcomes = [await app.handle(row["id"]).wait(timeout=30) for row in await db.fetch(query)]
    assert [one.status for one in outcomes] == ["Complete"] + ["Failed"] * 4


def test_what_cannot_be_passed_on_is_refused() -> None:
    with pytest.raises(BadArguments, match="has no parameter"):
        fetch.call("a").then(nothing)  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="at_least"):
        fetch.call("a").then(count, at_least="many")  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="unexpected"):
        fetch.call("a").then(count, page={})  # type: ignore[call-arg]
