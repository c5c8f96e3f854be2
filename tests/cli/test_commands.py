"""Commands on a pipe: tab-separated lines, JSON, exit codes, near names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.kit import Kit
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from tests.cli.shop import app

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def _database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("tasks", "list", code=0)`: what it says on stdout."""

    def call(*args: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(list(args)) == code, capsys.readouterr()
        return capsys.readouterr().out

    return call


def enqueue(url: str, *tasks: NewTask) -> list[UUID]:
    async def put() -> list[UUID]:
        async with await Database.open(url) as db:
            return [made.id for made in await db.tasks.enqueue(tasks)]

    return asyncio.run(put())


def drain(url: str) -> None:
    async def work() -> None:
        async with Kit.open(app, url) as kit:
            await kit.drain()

    asyncio.run(work())


def test_submit_prints_the_id(run: Run) -> None:
    id = run("submit", "shop.greet", "name=World").strip()
    shown = json.loads(run("tasks", "show", id, "--json"))
    assert (shown["task_type"], shown["params"]) == ("shop.greet", {"name": "World"})


def test_submit_reads_values_as_json_where_they_are(run: Run) -> None:
    id = run("submit", "x", "n=3", "list=[1,2]", "text=3 apples", "--params", '{"n": 1, "deep": {"a": null}}')
    params = json.loads(run("tasks", "show", id.strip(), "--json"))["params"]
    assert params == {"n": 3, "list": [1, 2], "text": "3 apples", "deep": {"a": None}}


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (["shop.greet", "World"], 2, "'World' is not name=value"),
        (["shop.greet", "--params", "[1]"], 2, "must be a JSON object"),
        (["shop.greet", "--params", "{"], 2, "not JSON"),
        (["shop.gret", "--app", "tests.cli.shop:app"], 2, "did you mean shop.greet?"),
        (["shop.greet", "nme=x", "--app", "tests.cli.shop:app"], 2, "nme: Extra inputs"),
        (["shop.greet", "--delay", "soon"], 2, "not a duration"),
        (["shop.greet", "--app", "no.such:app"], 2, "there is no module"),
    ],
)
def test_submit_refuses(
    args: list[str], code: int, word: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", *args]) == code
    assert word in capsys.readouterr().err
    assert run("tasks", "list") == ""


def test_submit_that_is_not_done_in_time(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "shop.greet", "name=x", "--wait", "--timeout", "0.1"]) == 9
    assert "shiftboss why" in capsys.readouterr().err


def test_submit_of_a_live_key_finds_the_task(run: Run, database_url: str) -> None:
    id = json.loads(run("submit", "shop.broken", "--dedup-key", "k", "--json"))["id"]
    assert json.loads(run("submit", "shop.broken", "--dedup-key", "k", "--json")) == {
        "id": id,
        "created": False,
    }


def test_a_list_on_a_pipe_is_tab_separated(run: Run, database_url: str) -> None:
    [id] = enqueue(database_url, NewTask(task_type="shop.greet", params={"name": "Ann"}))
    [line] = run("tasks", "list").splitlines()
    assert line.split("\t")[:5] == [str(id), "Queued", "shop.greet", "default", "0/3"]
    assert run("tasks", "list", "--status", "failed") == ""
    assert len(run("tasks", "list", "--search", "Ann").splitlines()) == 1


def test_a_list_has_pages(run: Run, database_url: str) -> None:
    enqueue(database_url, *(NewTask(task_type="t") for _ in range(3)))
    page = json.loads(run("tasks", "list", "-n", "2", "--json"))
    rest = json.loads(run("tasks", "list", "-n", "2", "--cursor", page["next"], "--json"))
    assert (len(page["items"]), len(rest["items"])) == (2, 1)


def test_first_characters_of_several_ids_name_them(
    run: Run, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [UUID(f"0189abcd-1234-7aaa-8bbb-00000000000{n}") for n in (1, 2)]
    enqueue(database_url, *(NewTask(task_type="t", id=id) for id in ids))
    assert main(["tasks", "show", "0189abcd-1234"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "more than one task id starts with 0189abcd-1234" in told
    assert all(str(id) in told for id in ids)


def test_first_characters_of_an_id_will_do(run: Run, database_url: str) -> None:
    [id] = enqueue(database_url, NewTask(task_type="t", id=uuid4()))
    assert str(id) in run("tasks", "show", str(id)[:8])
    assert main(["tasks", "show", "xyz!"]) == 2
    assert main(["tasks", "show", "0000"]) == 3
    assert main(["why", str(uuid4())]) != 0


def test_a_failure_is_shown_retried_and_cancelled(run: Run, database_url: str) -> None:
    [id] = enqueue(database_url, NewTask(task_type="shop.broken", max_attempts=1))
    drain(database_url)
    shown = run("tasks", "show", str(id))
    assert "Failed" in shown
    assert "RuntimeError: out of paper" in shown
    assert run("why", str(id)).startswith("failed\t")
    assert main(["submit", "shop.broken", "--wait", "--timeout", "0.1"]) == 9
    assert run("tasks", "retry", "--failed", "--type", "shop.broken") == "1 task will run again\n"
    assert run("tasks", "cancel", str(id), "--reason", "enough") == f"{id}\tCancelled\n"
    assert json.loads(run("tasks", "show", str(id), "--json"))["error_message"] == "enough"


def test_retry_and_cancel_ask_which(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "retry"]) == 2
    assert "--failed" in capsys.readouterr().err
    assert main(["tasks", "cancel", str(uuid4())]) == 3
    assert main(["tasks", "retry", str(uuid4())]) == 2
    assert main(["tasks", "list", "--status", "wrong"]) == 2


def test_why_gives_the_advice_that_helps(run: Run, database_url: str) -> None:
    [id] = enqueue(database_url, NewTask(task_type="shop.greet", params={"name": "x"}, queue="mail"))
    run("queues", "pause", "mail", "--reason", "holiday")
    run("queues", "pause", "--type", "shop.greet")
    advice = [line.split("\t")[2] for line in run("why", str(id)).splitlines()]
    for command in [a for a in advice if a.startswith("shiftboss queues")]:
        run(*command.split()[1:])
    reasons = [reason["reason"] for reason in json.loads(run("why", str(id), "--json"))]
    assert reasons == ["no capable worker"]


@pytest.mark.parametrize("waits", ["scheduled", "deferred", "backing off"])
def test_a_task_that_waits_for_a_time_is_run_as_why_says(waits: str, run: Run, database_url: str) -> None:
    backoff = timedelta(hours=1) if waits == "backing off" else None
    run_at = datetime.now(UTC) + timedelta(hours=1) if waits == "scheduled" else None
    [id] = enqueue(database_url, NewTask(task_type="t", run_at=run_at, backoff=backoff))

    async def start() -> None:
        async with await Database.open(database_url) as db:
            await db.workers.register(Member(id="w"))
            for task in await db.tasks.claim("w"):
                held = [(task.id, task.lease)]
                if waits == "deferred":
                    await db.tasks.defer(held, [timedelta(hours=1)], ["the shop is closed"])
                else:
                    await db.tasks.fail(held, ["no"])

    asyncio.run(start())
    reason, _, advice = run("why", str(id)).splitlines()[0].split("\t")
    assert reason == {
        "scheduled": "not due",
        "deferred": "the shop is closed",
        "backing off": "backoff after a failed attempt",
    }.get(waits)
    command = advice.partition("wait, or run it now: ")[2]
    assert run(*command.split()[1:]) == "1 task due now\n"
    assert json.loads(run("why", str(id), "--json"))[0]["reason"] == "busy"
    assert json.loads(run("tasks", "show", str(id), "--json"))["attempts"] == (waits == "backing off")
    assert main(command.split()[1:]) == 2, "it is due already"


def test_queues(run: Run, database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue(database_url, NewTask(task_type="t", queue="mail"))
    assert run("queues", "pause", "mail") == "mail paused\n"
    assert run("queues", "pause", "mail") == "mail was already paused\n"
    run("queues", "limit", "mail", "--running", "3", "--rate", "10", "--per", "30s")
    [row] = json.loads(run("queues", "list", "--json"))
    assert (row["paused"], row["max_running"], row["rate"], row["rate_seconds"]) == (True, 3, 10, 30.0)
    assert run("queues", "list").split("\t")[0] == "mail"
    assert run("queues", "resume", "mail") == "mail resumed\n"
    assert run("queues", "limit", "mail") == "mail: 3 running at a time, 10 per 30.0 s\n"
    assert run("queues", "limit", "mail", "--none") == "mail no longer limited\n"
    assert run("queues", "limit", "mail") == "mail: no limits\n"
    assert main(["queues", "pause", "mial"]) == 2
    assert "did you mean mail?" in capsys.readouterr().err
    assert main(["queues", "limit", "mail", "--per-key", "1"]) == 2


def test_status(run: Run, database_url: str) -> None:
    enqueue(database_url, NewTask(task_type="shop.greet", params={"name": "x"}))
    drain(database_url)
    data: dict[str, Any] = json.loads(run("status", "--json"))
    assert data["tasks"]["completed_tasks"] == 1
    assert run("status").startswith("tasks\t0 queued · 0 running · 1 completed")


def test_doctor_sees_what_nobody_can_do(run: Run, database_url: str) -> None:
    [id] = enqueue(database_url, NewTask(task_type="lost.task"))
    findings = json.loads(run("doctor", "--json", code=1))  # the tests' server runs with fsync off
    by_area = {(finding["level"], finding["area"]) for finding in findings}
    assert {("ok", "installed"), ("ok", "disk"), ("ok", "providers"), ("problem", "database")} <= by_area
    assert any("fsync is off" in finding["message"] for finding in findings)
    [lost] = [finding for finding in findings if "lost.task" in finding["message"]]
    assert lost["command"] == f"shiftboss why {id}"


def test_doctor_without_a_database(run: Run) -> None:
    out = run("doctor", "--database-url", "postgresql://nobody@127.0.0.1:1/none", code=1)
    assert any(line.startswith("problem\tdatabase\t") for line in out.splitlines())


def test_top_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 2
    assert "status --watch" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell: str, run: Run) -> None:
    script = run("completion", shell)
    assert all(word in script for word in ("submit", "queues", "retry", "--failed".strip("-")))


def test_config_and_database_as_json(run: Run, database_url: str) -> None:
    found = json.loads(run("config", "--json"))
    assert found["worker.concurrency"] == {"value": 10, "source": "default"}
    assert database_url not in found["database.url"]["value"]
    assert json.loads(run("db", "status", "--json"))["current"] is True


def test_config_names_the_variables_of_providers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:11434")
    assert run("config", "ai.openai.api_key") == "ai.openai.api_key = ***  (OPENAI_API_KEY)\n"
    assert run("config", "ai.ollama.base_url").endswith("= http://127.0.0.1:11434  (OLLAMA_HOST)\n")
    assert run("config", "ai.ollama.api_key") == "ai.ollama.api_key = None  (default)\n"
    monkeypatch.setenv("SHIFTBOSS_AI_OPENAI_API_KEY_FILE", "/run/secrets/openai")
    assert run("config", "ai.openai.api_key") == "ai.openai.api_key = None  (default)\n"


def test_tokens_are_listed_as_lines(run: Run) -> None:
    run("token", "create", "ci", "--role", "operator")
    [line] = run("token", "list").splitlines()
    assert line.split("\t")[:2] == ["ci", "operator"]
    assert line.split("\t")[5] == "live"
    [token] = json.loads(run("token", "list", "--json"))
    assert (token["name"], token["role"], token["revoked_at"]) == ("ci", "operator", None)
