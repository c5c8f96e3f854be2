"""Budgets and rates per tenant, task type and key, over processes; and the engine in handlers and in the CLI."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from shiftboss import App, Context
from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.errors import Exhausted
from shiftboss.model.codec import new_key
from shiftboss.model.errors import Defer
from tests.app.test_encryption import keys

from .conftest import ProtocolServer

USAGE = {"prompt_tokens": 1000, "completion_tokens": 250}  # half a cent


@pytest.fixture
def environment(server: ProtocolServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose settings lead to the protocol server."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")


async def test_a_tenant_spends_its_own_budget_only(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("x", usage=USAGE)
    await db.ai.set_ai_limit("tenant", "acme", daily_budget=0.008)
    async with await AI.open(make_settings("openai"), db) as ai:
        await ai.complete("first", tenant="acme")
        with pytest.raises(Defer) as held:
            await ai.complete("second", tenant="acme")
        await ai.complete("third", tenant="other")
        await ai.complete("fourth")
        assert (await ai.complete("first", tenant="other")).cached, "what is known costs nobody anything"
    assert held.value.reason == "the budget of tenant acme is spent until 00:00 UTC"
    assert len(server.requests()) == 3
    status = {(row["scope"], row["name"]): row for row in await db.ai.ai_limit_status()}
    assert float(status["tenant", "acme"]["spend_today"]) == pytest.approx(0.005)


async def test_calls_under_way_count_for_the_tenant(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("x")
    server.chaos(latencyMs=500)
    await db.ai.set_ai_limit("tenant", "*", daily_budget=0.009)
    async with (
        await AI.open(make_settings("openai"), db) as one,
        await AI.open(make_settings("openai"), db) as two,
    ):
        asked = [ai.complete(f"{n}", tenant="acme", cache=False) for ai in (one, two) for n in range(4)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(outcome, Defer) for outcome in outcomes) == 6
    assert len(server.requests()) == 2


@pytest.mark.parametrize("scope", ["tenant", "task_type", "key"])
async def test_requests_a_minute(
    db: Database, server: ProtocolServer, make_settings: Any, scope: str
) -> None:
    server.answers("x")
    await db.ai.set_ai_limit(scope, "a", requests_per_minute=2)
    async with await AI.open(make_settings("openai"), db) as ai:
        whose: Any = {scope: "a"}
        for n in range(2):
            await ai.complete(str(n), **whose)
        with pytest.raises(Defer) as held:
            await ai.complete("third", **whose)
        whose = {scope: "b"}
        await ai.complete("fourth", **whose)
    assert held.value.reason == f"{scope.replace('_', ' ')} a has reached its limit (2 requests per minute)"
    assert 50 < held.value.seconds <= 60


async def test_vectors_count_for_the_tenant(db: Database, server: ProtocolServer, make_settings: Any) -> None:
    await db.ai.set_ai_limit("tenant", "acme", tokens_per_minute=100)
    settings = make_settings("openai").model_copy(update={"embedding_provider": "openai"})
    async with await AI.open(settings, db) as ai:
        await ai.embed(["word " * 100], tenant="acme")
        with pytest.raises(Defer, match="tenant acme has reached its limit"):
            await ai.embed(["another " * 100], tenant="acme")
        assert len(await ai.embed(["another " * 100], tenant="other")) == 1


async def test_a_spent_budget_of_one_tenant_holds_no_other_that_asks_the_same(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("x")
    await db.ai.set_ai_limit("tenant", "acme", daily_budget=0)
    async with await AI.open(make_settings("openai"), db) as ai:
        asked = [ai.complete("the same", tenant=tenant) for tenant in ("acme", "other")]
        held, answered = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(held, Defer)
    assert not isinstance(answered, BaseException)


async def test_a_call_that_no_day_can_pay_says_so(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    await db.ai.set_ai_limit("tenant", "poor", daily_budget=0.0001)
    async with await AI.open(make_settings("openai"), db) as ai:
        with pytest.raises(Exhausted, match=r"exceeds the daily budget of tenant poor, \$0.0001"):
            await ai.complete("x", tenant="poor")
        await db.ai.set_ai_limit("tenant", "poor", daily_budget=0)
        with pytest.raises(Defer, match="budget of tenant poor is spent"):
            await ai.complete("x", tenant="poor")
    async with await AI.open(make_settings("openai", daily_budget=0.0001)) as ai:
        with pytest.raises(Exhausted, match=r"exceeds the daily budget of provider openai, \$0.0001"):
            await ai.complete("x")
    assert server.requests() == []


@pytest.fixture(params=["plain", "encrypted"])
def encryption(request: pytest.FixtureRequest) -> Iterator[None]:
    with keys(*([new_key()] if request.param == "encrypted" else [])):
        yield


@pytest.mark.usefixtures("environment", "encryption")
async def test_a_handler_asks_for_its_tenant_and_why_tells(
    db: Database, server: ProtocolServer, eventually: Any
) -> None:
    server.answers("A summary.", usage=USAGE)
    app = App("shop")

    @app.task()
    async def summarise(ctx: Context, text: str) -> str:
        return (await ctx.ai.complete(f"Sum up: {text}", model="openai")).text

    @app.task()
    def in_a_thread(ctx: Context, text: str) -> str:
        stream = ctx.sync_ai.stream(f"Sum up: {text}", model="openai")
        return "".join(stream) + f" {stream.answer.cached}"

    await app.use(db)
    await db.ai.set_ai_limit("tenant", "acme", daily_budget=0.008)
    async with app.worker():
        ours = summarise.options(tenant="acme")
        first = await ours.enqueue("one")
        assert await first.result(timeout=30) == "A summary."
        assert await (await in_a_thread.enqueue("one")).result(timeout=30) == "A summary. False"
        second = await ours.enqueue("two")

        async def waits() -> bool:
            return any("budget" in reason.reason for reason in await db.tasks.why(second.id))

        await eventually(waits, timeout=20)
        [reason] = [each for each in await db.tasks.why(second.id) if "budget" in each.reason]
        task = await db.tasks.get(second.id)
        await db.ai.set_ai_limit("tenant", "acme", daily_budget=0.02)
        assert await second.result(timeout=30) == "A summary.", "a raised budget releases its tasks"
    assert reason.reason == "the budget of tenant acme is spent until 00:00 UTC"
    assert reason.advice == "wait, or raise it: shiftboss ai limit tenant acme --daily-budget …"
    assert task is not None
    assert (task["status"], task["attempts"]) == ("Queued", 0), "no attempt is spent"
    [call] = await db.ai.calls(task_id=first.id)
    assert (call["tenant"], call["task_type"]) == ("acme", "shop.summarise")
    await app.close()


@pytest.mark.parametrize(
    ("change", "released"),
    [
        (
            "SELECT shiftboss.set_ai_limit('tenant', 'a_b', 9)",
            {"budget of a_b", "limit of a_b", "call of a_b"},
        ),
        (
            "DELETE FROM shiftboss.ai_limits WHERE name = 'a_b'",
            {"budget of a_b", "limit of a_b", "call of a_b"},
        ),
        (
            "SELECT shiftboss.set_ai_limit('tenant', '*', 9)",
            {"budget of a_b", "limit of a_b", "call of a_b", "budget of axb"},
        ),
        ("SELECT shiftboss.set_ai_limit('key', 'a_b', 9)", set()),
        ("UPDATE shiftboss.ai_providers SET daily_budget = 9", {"budget of openai"}),
        ("UPDATE shiftboss.ai_providers SET failures = 1, daily_budget = 1", set()),
    ],
)
async def test_a_changed_limit_releases_exactly_its_tasks(
    db: Database, change: str, released: set[str]
) -> None:
    reasons = {
        "budget of a_b": "the budget of tenant a_b is spent until 00:00 UTC",
        "limit of a_b": "tenant a_b has reached its limit (2 requests per minute)",
        "call of a_b": "a call of about $0.0040 exceeds the daily budget of tenant a_b, $0.001",
        "budget of axb": "the budget of tenant axb is spent until 00:00 UTC",
        "budget of openai": "the budget of provider openai is spent until 00:00 UTC",
        "another reason": "waiting for tenant a_b",
    }
    await db.ai.set_ai_limit("tenant", "a_b", daily_budget=1)
    await db.execute("INSERT INTO shiftboss.ai_providers (provider, daily_budget) VALUES ('openai', 1)")
    for name, reason in reasons.items():
        await db.execute(
            "INSERT INTO tasks (task_type, run_at, wait_reason) VALUES (%s, now() + interval '1 day', %s)",
            [name, reason],
        )
    await db.execute(change)
    due = await db.fetch(
        "SELECT task_type FROM tasks WHERE run_at <= shiftboss.now() AND wait_reason IS NULL"
    )
    assert {row["task_type"] for row in due} == released


@pytest.mark.usefixtures("environment")
async def test_an_app_asks(db: Database, server: ProtocolServer) -> None:
    server.answers("Minka")
    app = App("script")
    await app.use(db)
    assert (await app.ai.complete("A name?", model="openai")).text == "Minka"
    assert [piece async for piece in app.ai.stream("Another?", model="openai")] == ["Minka"]
    assert (await app.ai.embed(["a", "b"])).provider == "local"
    await app.close()


@pytest.mark.usefixtures("environment")
def test_code_without_a_loop_asks(database_url: str, server: ProtocolServer) -> None:
    server.answers("Minka")
    app = App("flask", url=database_url)
    assert app.sync.ai.complete("A name?", model="openai").text == "Minka"
    stream = app.sync.ai.stream("Another?", model="openai")
    assert "".join(stream) == "Minka"
    assert stream.answer.provider == "openai"
    assert len(app.sync.ai.embed(["a"])) == 1
    app.sync.close()


def shiftboss(url: str, *words: str) -> str:
    environment = os.environ | {"SHIFTBOSS_DATABASE_URL": url}
    done = subprocess.run(
        [sys.executable, "-m", "shiftboss", "ai", *words], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("environment")
def test_the_command_line(database_url: str, server: ProtocolServer) -> None:
    server.answers("Minka", usage=USAGE)
    assert shiftboss(database_url, "complete", "A name?", "--model", "openai") == "Minka\n"
    said = json.loads(shiftboss(database_url, "complete", "A name?", "-m", "openai", "--json"))
    assert (said["text"], said["cached"]) == ("Minka", True)
    [call, bought] = json.loads(shiftboss(database_url, "calls", "--json"))
    assert (call["outcome"], bought["outcome"], bought["cost"]) == ("cached", "ok", 0.005)
    shown = json.loads(shiftboss(database_url, "show", bought["call_id"][:12]))
    assert shown["prompt"]["messages"][0]["content"] == "A name?"
    shiftboss(database_url, "limit", "tenant", "acme", "--daily-budget", "5")
    assert shiftboss(database_url, "limits").splitlines()[-1].split("\t")[:2] == ["tenant", "acme"]
    assert "sentiment_analysis" in shiftboss(database_url, "templates")
    assert "gpt-4o" in shiftboss(database_url, "models")
    assert len(json.loads(shiftboss(database_url, "embed", "a text"))) == 256


async def test_the_cost_of_a_task_includes_its_children(db: Database, database_url: str) -> None:
    made = await db.fetch("INSERT INTO tasks (task_type) VALUES ('a'), ('a'), ('a') RETURNING id")
    parent, child, other = (row["id"] for row in made)
    await db.execute(
        "INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, attempt, lease, started_at, child_id)"
        " VALUES (%s, 'child', 'a', 1, 'done', 1, 1, now(), %s)",
        [parent, child],
    )
    for task, cost in ((parent, 0.25), (child, 0.5), (child, 0.125), (other, 9)):
        await db.execute(
            "INSERT INTO shiftboss.ai_calls (provider, model, kind, task_type, task_id, started_at, lease_until,"
            " outcome, prompt_tokens, cost) VALUES ('p', 'm', 'completion', 'a', %s, now(), now(), 'ok', 5, %s)",
            [task, cost],
        )
    run = [sys.executable, "-m", "shiftboss", "ai", "calls", "--task", str(parent)]
    done = subprocess.run(
        run,
        env=os.environ | {"SHIFTBOSS_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == "total of the task and its 1 child task: 3 calls, 15 tokens, $0.87500000\n"
