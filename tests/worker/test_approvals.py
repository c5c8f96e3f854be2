"""Tasks that wait for a person: the question, its schema, and answers that are checked and audited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from shiftboss import Context, SyncContext
from shiftboss.app import App
from shiftboss.kit import Kit
from shiftboss.model.access import Forbidden, Principal, Role
from shiftboss.model.errors import DatabaseError, NotFound, UsageError, WaitTimeout
from shiftboss.model.settings import Settings
from shiftboss.operations import Operations

ANN = Principal("ann", Role.OPERATOR, source="10.0.0.7")
BOB = Principal("bob", Role.OPERATOR)
EVE = Principal("eve", Role.VIEWER)


class Verdict(BaseModel):
    ok: bool
    grade: Literal["good", "fair"] = "fair"


app = App("approvals")


@app.task()
async def publish(ctx: Context) -> str:
    verdict = await ctx.wait_for("approval", Verdict, timeout=timedelta(days=2), question="Publish it?")
    assert isinstance(verdict, Verdict)
    return f"{verdict.ok} {verdict.grade}"


@app.task()
def publish_plainly(ctx: SyncContext) -> Any:
    return ctx.wait_for("approval", question="And now?")


@app.task()
async def ask_twice(ctx: Context) -> list[Any]:
    asked = [ctx.wait_for("name", str, question="Who?"), ctx.wait_for("name", str, question="And who else?")]
    return await ctx.gather(*asked)


@pytest.fixture
async def kit(database_url: str) -> AsyncIterator[Kit]:
    async with Kit.open(app, database_url) as kit:
        yield kit


@pytest.fixture
def operations(kit: Kit) -> Operations:
    return Operations(kit.db, Settings())


async def test_the_question_and_the_schema_of_its_answer_are_kept_with_the_wait(kit: Kit) -> None:
    handle = await publish.enqueue()
    await kit.drain()
    (one,) = await kit.db.steps.approvals()
    assert (one["task_id"], one["name"], one["ordinal"], one["question"]) == (
        handle.id,
        "approval",
        1,
        "Publish it?",
    )
    assert one["until"] - one["asked_at"] == timedelta(days=2)
    assert one["schema"]["properties"]["grade"]["enum"] == ["good", "fair"]
    assert one["schema"]["required"] == ["ok"]
    (reason,) = await handle.why()
    assert (reason.reason, reason.detail.partition(",")[0]) == ("waits for an answer", "Publish it?")
    assert reason.advice == f"shiftboss approvals answer {handle.id} --step approval"


async def test_an_answer_is_checked_recorded_and_given_once(kit: Kit, operations: Operations) -> None:
    handle = await publish.enqueue()
    await kit.drain()
    with pytest.raises(UsageError, match="grade") as wrong:
        await operations.answer(ANN, handle.id, {"ok": True, "grade": "bad"})
    assert [field["field"] for field in wrong.value.fields or []] == ["grade"]
    with pytest.raises(Forbidden):
        await operations.answer(EVE, handle.id, {"ok": True})
    await operations.answer(ANN, handle.id, {"ok": True, "grade": "good"})
    with pytest.raises(NotFound, match="does not wait"):
        await operations.answer(BOB, handle.id, {"ok": False})
    await kit.drain()
    assert await handle.result(5) == "True good"
    (step,) = await kit.db.steps.of(handle.id)
    assert (step["state"], step["answered_by"], step["result"]) == (
        "done",
        "ann",
        {"ok": True, "grade": "good"},
    )
    audit = await kit.db.tokens.audit()
    assert [(row["actor"], row["outcome"]) for row in audit] == [
        ("bob", "failed"),
        ("ann", "done"),
        ("eve", "refused"),
        ("ann", "failed"),
    ]
    assert (audit[1]["action"], audit[1]["target"]) == ("task.answer", str(handle.id))
    assert audit[1]["details"] == {
        "step": "approval#1",
        "question": "Publish it?",
        "answer": {"ok": True, "grade": "good"},
        "from": "10.0.0.7",
    }


async def test_of_two_who_answer_at_once_one_is_told_that_it_is_too_late(
    kit: Kit, operations: Operations
) -> None:
    handle = await publish.enqueue()
    await kit.drain()
    answers = [operations.answer(who, handle.id, {"ok": who is ANN}) for who in (ANN, BOB)]
    ends = await asyncio.gather(*answers, return_exceptions=True)
    assert sum(isinstance(end, DatabaseError | NotFound) for end in ends) == 1
    (step,) = await kit.db.steps.of(handle.id)
    assert step["result"] == {"ok": step["answered_by"] == "ann"}


async def test_several_questions_of_a_task_are_told_apart(kit: Kit, operations: Operations) -> None:
    handle = await ask_twice.enqueue()
    await kit.drain()
    with pytest.raises(UsageError, match="has 2 open questions"):
        await operations.answer(ANN, handle.id, "Carl")
    await operations.answer(ANN, handle.id, "Dora", "name#2")
    await kit.drain()
    assert [one["ordinal"] for one in await kit.db.steps.approvals(handle.id)] == [1]
    await operations.answer(ANN, handle.id, "Carl", "name")
    await kit.drain()
    assert await handle.result(5) == ["Carl", "Dora"]


async def test_a_question_without_a_type_takes_any_json_and_an_event_answers_it_too(
    kit: Kit, operations: Operations
) -> None:
    first, second = await publish_plainly.enqueue(), await publish_plainly.enqueue()
    await kit.drain()
    assert [one["schema"] for one in await kit.db.steps.approvals()] == [None, None]
    await operations.answer(ANN, first.id, None)
    await app.send_event("approval", [1], task=second.id)
    await kit.drain()
    assert [await first.result(5), await second.result(5)] == [None, [1]]


async def test_what_waits_no_longer_is_not_listed(kit: Kit, operations: Operations) -> None:
    await kit.freeze()
    cancelled, late = await publish.enqueue(), await publish.enqueue()
    await kit.drain()
    await kit.db.tasks.cancel([cancelled.id])
    assert [one["task_id"] for one in await kit.db.steps.approvals()] == [late.id]
    with pytest.raises(NotFound):
        await operations.answer(ANN, cancelled.id, {"ok": True})
    await kit.move(days=3)
    await kit.drain()
    assert WaitTimeout.__name__ in (await late.look())["error_message"]
    assert await kit.db.steps.approvals() == []


async def test_a_retry_from_a_question_asks_again(kit: Kit, operations: Operations) -> None:
    handle = await publish.enqueue()
    await kit.drain()
    await operations.answer(ANN, handle.id, {"ok": True})
    await kit.db.tasks.cancel([handle.id])
    await kit.db.tasks.retry([handle.id], "approval")
    await kit.drain()
    assert len(await kit.db.steps.approvals(handle.id)) == 1


@pytest.mark.parametrize("question", ["", " ", 7, "a\x00b", "x" * 10_001])
async def test_what_cannot_be_asked_is_refused(kit: Kit, question: Any) -> None:
    @app.task(name=f"odd {question!r:.20}", max_attempts=1)
    async def odd(ctx: Context) -> Any:
        return await ctx.wait_for("approval", question=question)

    handle = await odd.enqueue()
    await kit.drain()
    assert "UsageError" in (await handle.look())["error_message"]


async def test_a_schema_opens_no_connection(kit: Kit, operations: Operations) -> None:
    handle = await publish.enqueue()
    await kit.drain()
    await kit.db.execute('UPDATE shiftboss.steps SET schema = \'{"$ref": "http://127.0.0.1:9/schema"}\'')
    with pytest.raises(UsageError, match="cannot be used"):
        await operations.answer(ANN, handle.id, {"ok": True})
