"""Durable tasks from the command line: their steps, events for them, and a retry from a step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from shiftboss import App, Context, SyncContext
from shiftboss.cli import main
from shiftboss.kit import Kit

Run = Callable[..., str]
app = App("paper")
drafts: list[int] = []


class Verdict(BaseModel):
    ok: bool
    comment: str = ""


@app.task(max_attempts=1)
async def review(ctx: Context) -> str:
    await ctx.step("draft", lambda: drafts.append(ctx.attempt))
    verdict = await ctx.wait_for("verdict", dict, timeout=3600)
    await ctx.step("print", lambda: verdict["copies"])
    return str(verdict["by"])


@app.task()
async def publish(ctx: Context) -> str:
    return str((await ctx.wait_for("approval", Verdict, question="Publish it?")).ok)


@app.task(max_attempts=1)
async def burn(ctx: Context) -> None:
    await ctx.step("warm", lambda: None)
    raise RuntimeError("the press is on fire")


@app.task(max_attempts=1)
async def jam(ctx: Context) -> None:
    await ctx.step("warm", lambda: None)
    await ctx.step("feed", lambda: None)
    await ctx.step("feed", lambda: 1 / 0)


@app.task(max_attempts=1)
def jam_in_a_thread(ctx: SyncContext) -> None:
    ctx.step("press", lambda: 1 / 0)


@pytest.fixture
def run(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)

    def call(*args: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(list(args)) == code, capsys.readouterr()
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return call


def drain(url: str, task: Any = None) -> str:
    async def work() -> str:
        async with Kit.open(app, url) as kit:
            id = str((await task.enqueue()).id) if task else ""
            await kit.drain()
            return id

    return asyncio.run(work())


def test_a_task_that_waits_is_answered_and_started_again_from_a_step(run: Run, database_url: str) -> None:
    drafts.clear()
    id = drain(database_url, review)
    shown = run("why", id)
    assert f"shiftboss events send verdict --task {id}" in shown
    assert "not JSON" in run("events", "send", "verdict", "{", code=2)
    assert run("events", "send", "verdict", '{"by": "Ann"}', "--task", id) == "1 task woken\n"
    drain(database_url)
    assert "KeyError" in run("tasks", "show", id)  # no copies: it failed
    steps = json.loads(run("tasks", "steps", id, "--json"))
    assert [(step["kind"], step["name"], step["state"]) for step in steps] == [
        ("step", "draft", "done"),
        ("event", "verdict", "done"),
    ]
    assert "verdict" in run("tasks", "steps", id)
    assert "has no step" in run("tasks", "retry", id, "--from", "nothing", code=4)
    run("tasks", "retry", id, "--from", "verdict")
    drain(database_url)
    run("events", "send", "verdict", '{"by": "Bob", "copies": 2}')
    drain(database_url)
    assert json.loads(run("tasks", "show", id, "--json"))["result_data"] == "Bob"
    assert drafts == [1]


def test_a_question_is_listed_and_answered(run: Run, database_url: str) -> None:
    id = drain(database_url, publish)
    shown = run("approvals").split("\t")
    assert shown[:5] == [id, "paper.publish", "approval", "Publish it?", 'ok: boolean, comment: string = ""']
    (one,) = json.loads(run("approvals", "--json"))
    assert one["schema"]["required"] == ["ok"]
    assert f"shiftboss approvals answer {id} --step approval" in run("why", id)
    assert "the answer is not valid" in run("approvals", "answer", id, "ok=maybe", code=2)
    assert "neither JSON nor" in run("approvals", "answer", id, "yes", code=2)
    assert run("approvals", "answer", id, "ok=true", "comment=well done") == "answered: Publish it?\n"
    assert "does not wait" in run("approvals", "answer", id, '{"ok": true}', code=3)
    assert run("approvals") == ""
    drain(database_url)
    assert json.loads(run("tasks", "show", id, "--json"))["result_data"] == "True"


def test_a_prefix_means_a_task_that_asks(run: Run, database_url: str) -> None:
    done = drain(database_url, burn)
    id = drain(database_url, publish)
    short = next(done[:n] for n in range(36, 0, -1) if done[:n] == id[:n]).rstrip("-")
    refused = run("why", short, code=2)
    assert done in refused
    assert id in refused
    assert run("approvals", "answer", short, "ok=true") == "answered: Publish it?\n"


def test_a_failure_is_told_once_and_with_its_place(
    run: Run, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    id = drain(database_url, burn)
    assert "Traceback" not in run("why", id)
    assert "RuntimeError: the press is on fire" in run("why", id)
    shown = run("tasks", "show", id)
    assert shown.count("Traceback") == 1
    assert f"\n{'':<10} → shiftboss tasks retry {id}\n" in shown
    assert main(["tasks", "steps", id]) == 0
    assert capsys.readouterr().err == "failed after the last step: RuntimeError: the press is on fire\n"


@pytest.mark.parametrize(("task", "step"), [(jam, "feed#2"), (jam_in_a_thread, "press")])
def test_the_step_that_failed_is_named(
    run: Run, database_url: str, capsys: pytest.CaptureFixture[str], task: Any, step: str
) -> None:
    id = drain(database_url, task)
    assert main(["tasks", "steps", id]) == 0
    assert capsys.readouterr().err == f"failed in step {step}: ZeroDivisionError: division by zero\n"


def test_a_task_is_submitted_for_a_tenant(run: Run) -> None:
    id = run("submit", "paper.burn", "--tenant", "acme").strip()
    assert json.loads(run("tasks", "show", id, "--json"))["tenant"] == "acme"
