"""Costs: no call is made that the database has not admitted, and no cost is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Need, admission, answers
from shiftboss.model.errors import DatabaseUnavailable, Defer
from shiftboss.model.step import StepScope, in_step
from tests.conftest import outage

from .asking import asked
from .conftest import SENTIMENT, FaultProxy, ProtocolServer

USAGE = {"prompt_tokens": 1000, "completion_tokens": 500}
COST = 1000 * 2.5e-6 + 500 * 10e-6


def ask(text: str = "What a day!", **more: Any) -> dict[str, Any]:
    return asked("sentiment_analysis", text, answers.SentimentAnalysis, Need.ADVANCED, **more)


async def spent(db: Database) -> float:
    row = await db.fetch_one("SELECT coalesce(sum(cost), 0)::float AS cost FROM shiftboss.ai_spend")
    assert row is not None
    return float(row["cost"])


async def test_while_the_database_is_away_nothing_is_called(
    db: Database, server: ProtocolServer, make_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "ADMISSION_TIMEOUT", 0.5)
    server.answers(SENTIMENT, usage=USAGE)
    async with await AI.open(make_settings("openai", "local", daily_budget=0.03), db) as ai:
        await ai.complete(**ask("first"))
        with monkeypatch.context() as impatient:
            impatient.setattr(db._pool, "timeout", 0.5)  # the pool waits 15 s for a connection otherwise
            async with outage(db):
                for number in range(3):
                    with pytest.raises(Defer, match="the database does not answer"):
                        await ai.complete(**ask(str(number)))
        assert len(server.requests()) == 1
    assert await spent(db) == pytest.approx(COST)


async def test_a_call_waits_for_a_database_that_comes_back(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers(SENTIMENT, usage=USAGE)
    async with await AI.open(make_settings("openai"), db) as ai:
        async with outage(db):
            waiting = asyncio.create_task(ai.complete(**ask()))
            await asyncio.wait([waiting], timeout=0.5)
            assert not server.requests()
        assert (await waiting).provider == "openai"
    assert await spent(db) == pytest.approx(COST)


async def test_what_was_spent_while_the_database_was_lost_is_written_later(
    db: Database, server: ProtocolServer, make_settings: Any, eventually: Any, data_dir: Path
) -> None:
    server.answers(SENTIMENT, usage=USAGE)
    server.chaos(latencyMs=1500)
    async with await AI.open(make_settings("openai", daily_budget=1), db) as ai:
        call = asyncio.create_task(ai.complete(**ask()))
        await eventually(lambda: db.fetch("SELECT FROM shiftboss.ai_calls"))
        async with outage(db):
            assert (await call).usage.cost == pytest.approx(COST)
            [kept] = (data_dir / "ai").glob("*.calls")
            assert str((await call).call_id) in kept.read_text()
        await eventually(lambda: _is(spent(db), COST))
    assert not list((data_dir / "ai").iterdir()), "nothing is left on disk"


async def _is(figure: Any, wanted: float) -> bool:
    try:
        return abs(await figure - wanted) < 1e-9
    except DatabaseUnavailable:  # a connection that the outage had cut
        return False


async def test_a_killed_process_leaves_its_spend_to_the_next(
    db: Database, server: ProtocolServer, make_settings: Any, eventually: Any, data_dir: Path
) -> None:
    """Killed after the answer, while the database was away: the next engine on this host writes it."""
    server.answers(SENTIMENT, usage=USAGE)
    server.chaos(latencyMs=1500)
    settings = make_settings("openai", daily_budget=1)
    data = settings.model_dump(mode="json")
    for name in ("openai", "azure"):
        data[name]["api_key"] = "k"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).parent / "caller.py"), db.url, json.dumps(data), "x",
        stdout=asyncio.subprocess.PIPE, env=os.environ | {"SHIFTBOSS_DATA_DIR": str(data_dir)},
    )  # fmt: skip
    await eventually(lambda: db.fetch("SELECT FROM shiftboss.ai_calls"), timeout=30)
    async with outage(db):
        await eventually(
            lambda: [f for f in (data_dir / "ai").glob("*.calls") if f.stat().st_size], timeout=20
        )
        process.send_signal(signal.SIGKILL)
        await process.wait()
    await eventually(lambda: _is(spent(db), 0))
    async with await AI.open(settings, db):
        await eventually(lambda: _is(spent(db), COST))


async def leave_spend(db: Database, directory: Path, name: str, cost: float) -> None:
    """Leave what a killed process leaves: many admitted calls, whose real cost is on disk only."""
    lines = []
    for _ in range(100):
        call = uuid.uuid4()
        await db.ai.admit_call(call, provider="openai", model="m", kind="completion", task_type="t", tokens=1,
                               cost=0.0001, lease=60)  # fmt: skip
        settled = {"outcome": "ok", "prompt_tokens": 1, "completion_tokens": 1, "cost": cost / 100}
        lines.append(json.dumps({"call_id": str(call), "noted_at": 1.0, **settled}))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.calls").write_text("\n".join(lines))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_no_call_is_admitted_before_the_spend_of_a_killed_process_is_recorded(
    db: Database, server: ProtocolServer, make_settings: Any, data_dir: Path, when: str
) -> None:
    """Whether it was killed before this engine was opened, or while it was open."""
    server.answers(SENTIMENT, usage=USAGE)
    settings = make_settings("openai", daily_budget=1)
    async with await AI.open(settings, db) as ai:
        if when == "after":
            await leave_spend(db, data_dir / "ai", "1-dead", 1.0)
            with pytest.raises(Defer, match="the budget of provider openai is spent"):
                await ai.complete(**ask())
    if when == "before":
        await leave_spend(db, data_dir / "ai", "1-dead", 1.0)
        async with await AI.open(settings, db) as ai:
            with pytest.raises(Defer, match="the budget of provider openai is spent"):
                await ai.complete(**ask())
    assert not server.requests()
    assert await spent(db) == pytest.approx(1.0)


async def test_the_calls_of_a_step_stay_within_the_budget(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    """They are recorded together with the step, but earlier if they cost more than was reserved."""
    server.answers("a long answer", usage={"prompt_tokens": 1000, "completion_tokens": 50_000})
    async with await AI.open(make_settings("openai", daily_budget=1.1), db) as ai:
        token = in_step.set(StepScope("long", db))
        for number in range(3):  # about half a dollar each
            await ai.complete(f"number {number}", model="openai")
        with pytest.raises(Defer, match="the budget of provider openai is spent"):
            await ai.complete("number 3", model="openai")
        in_step.reset(token)
    assert len(server.requests()) == 3


async def test_a_call_that_was_never_settled_counts_at_its_estimate(db: Database) -> None:
    await db.ai.ai_configure(
        "p", model="m", requests_per_minute=None, tokens_per_minute=None, daily_budget=1, failure_limit=5,
        recovery=30,
    )  # fmt: skip
    lost = uuid.uuid4()
    common: dict[str, Any] = {
        "provider": "p",
        "model": "m",
        "kind": "completion",
        "task_type": "t",
        "tokens": 1,
    }
    assert (await db.ai.admit_call(lost, **common, cost=0.9, lease=0.001)).admitted
    held = await db.ai.admit_call(uuid.uuid4(), **common, cost=0.2, lease=60)
    assert held.reason == "the budget of provider p is spent until 00:00 UTC"
    again = await db.ai.admit_call(lost, **common, cost=0.9, lease=0.001)
    assert again.admitted, "admitting the same call again is harmless"
    settled = {"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.1}
    assert await db.ai.settle_call(lost, "ok", **settled) == "settled"
    assert await db.ai.settle_call(lost, "ok", **settled) == "already"
    assert await db.ai.settle_call(uuid.uuid4(), "ok", **settled) == "unknown"
    assert (await db.ai.admit_call(uuid.uuid4(), **common, cost=0.2, lease=60)).admitted


async def test_a_lost_call_is_booked_and_corrected_when_it_turns_up(db: Database) -> None:
    await db.ai.ai_configure(
        "p", model="m", requests_per_minute=None, tokens_per_minute=None, daily_budget=None, failure_limit=5,
        recovery=30,
    )  # fmt: skip
    lost = uuid.uuid4()
    await db.ai.admit_call(
        lost,
        provider="p",
        model="m",
        kind="completion",
        task_type="t",
        tokens=10,
        cost=0.9,
        lease=1,
        tenant="acme",
    )
    await db.execute("UPDATE shiftboss.ai_calls SET lease_until = lease_until - interval '2 days'")
    await db.ai.ai_prune()
    assert await spent(db) == pytest.approx(0.9)
    await db.ai.settle_call(lost, "ok", prompt_tokens=7, completion_tokens=1, cost=0.2)
    assert await spent(db) == pytest.approx(0.2)
    acme = {row["scope"]: row for row in await db.ai.ai_limit_status()}["tenant"]
    assert (acme["calls_today"], acme["tokens_today"], float(acme["spend_today"])) == (1, 8, 0.2)


async def test_settling_belongs_to_the_transaction_that_stores_the_answer(db: Database) -> None:
    await db.ai.ai_configure(
        "p", model="m", requests_per_minute=None, tokens_per_minute=None, daily_budget=1, failure_limit=5,
        recovery=30,
    )  # fmt: skip
    call = uuid.uuid4()
    await db.ai.admit_call(
        call, provider="p", model="m", kind="completion", task_type="t", tokens=1, cost=0.5, lease=60
    )
    with pytest.raises(RuntimeError, match="undone"):
        async with db.transaction() as conn:
            await conn.execute("SELECT shiftboss.settle_call(%s, 'ok', 1, 1, 0.5)", [call])
            raise RuntimeError("undone")
    assert await spent(db) == 0
    async with db.transaction() as conn:
        await conn.execute("SELECT shiftboss.settle_call(%s, 'ok', 1, 1, 0.5)", [call])
    assert await spent(db) == pytest.approx(0.5)


@pytest.mark.parametrize("fault", ["drip", "reset"])
async def test_an_answer_that_never_arrived_counts_at_its_estimate(
    db: Database, proxy: FaultProxy, make_settings: Any, fault: str
) -> None:
    """The request was sent, so it may be billed."""
    proxy.fault = fault
    async with await AI.open(make_settings("openai", url=proxy.url, timeout=0.5), db) as ai:
        with pytest.raises(Exception, match=r"timed out|connection"):
            await ai.complete(**ask())
    rows = await db.fetch("SELECT outcome, cost::float AS cost FROM shiftboss.ai_calls")
    assert len(rows) == 3
    assert all(row["outcome"] == "unavailable" and row["cost"] > 0.004 for row in rows)


async def test_odd_files_are_left_out(
    db: Database, server: ProtocolServer, make_settings: Any, data_dir: Path
) -> None:
    server.answers(SENTIMENT, usage=USAGE)
    (data_dir / "ai").mkdir(parents=True)
    lines = [
        "[1]",
        '{"call_id": 3}',
        '{"half',
        json.dumps({"call_id": str(uuid.uuid4()), "noted_at": 1, "x": 2}),
    ]
    (data_dir / "ai" / "1-dead.calls").write_text("\n".join(lines))
    async with await AI.open(make_settings("openai"), db) as ai:
        await ai.complete(**ask())
    assert await spent(db) == pytest.approx(COST)
    assert not list((data_dir / "ai").iterdir())


async def test_without_a_place_on_disk_calls_go_on(
    db: Database, server: ProtocolServer, make_settings: Any, tmp_path: Path
) -> None:
    server.answers(SENTIMENT, usage=USAGE)
    (tmp_path / "file").write_text("not a folder")
    async with await AI.open(make_settings("openai"), db, directory=tmp_path / "file" / "ai") as ai:
        assert (await ai.complete(**ask())).provider == "openai"
    assert await spent(db) == pytest.approx(COST)


def reply(finish: str, content: str | None, refusal: str | None = None) -> bytes:
    message = {"role": "assistant", "content": content, "refusal": refusal}
    choice = {"index": 0, "finish_reason": finish, "message": message}
    return json.dumps({"model": "m", "choices": [choice], "usage": USAGE}).encode()


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (reply("stop", None, "I cannot help with that."), "declined"),
        (reply("content_filter", ""), "declined"),
        (reply("length", '{"processed_data": {"overall'), "truncated"),
    ],
)
async def test_what_is_billed_is_booked_and_not_asked_again(
    db: Database, proxy: FaultProxy, make_settings: Any, body: bytes, outcome: str
) -> None:
    proxy.fault, proxy.canned = "canned", body
    async with await AI.open(make_settings("openai", url=proxy.url), db) as ai:
        with pytest.raises(Exception, match=r"declined|content filter|cut off") as caught:
            await ai.complete(**ask())
    assert "malformed" not in str(caught.value)
    [call] = await db.fetch("SELECT outcome, cost::float AS cost FROM shiftboss.ai_calls")
    assert call == {"outcome": outcome, "cost": pytest.approx(COST)}
    assert await spent(db) == pytest.approx(COST)


async def test_ollama_says_that_an_answer_was_cut_off(
    db: Database, proxy: FaultProxy, make_settings: Any
) -> None:
    body = {"model": "m", "message": {"role": "assistant", "content": '{"half'}, "done": True,
            "done_reason": "length", "prompt_eval_count": 10, "eval_count": 5}  # fmt: skip
    proxy.fault, proxy.canned = "canned", json.dumps(body).encode()
    async with await AI.open(make_settings("ollama", url=proxy.url), db) as ai:
        with pytest.raises(Exception, match="cut off after 5 tokens"):
            await ai.complete(**asked("sentiment_analysis", "x", answers.SentimentAnalysis, Need.BASIC))
    [call] = await db.fetch("SELECT outcome, completion_tokens FROM shiftboss.ai_calls")
    assert call == {"outcome": "truncated", "completion_tokens": 5}
