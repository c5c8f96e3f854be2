"""Commands for tokens, runs and the bind address, each recorded in the audit log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.model.worker import Member


@pytest.fixture
def cli(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)

    async def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(main, args)
        out, err = capsys.readouterr()
        return code, out.strip(), err.strip()

    return run


async def test_tokens(db: Database, cli: Any) -> None:
    code, _, err = await cli("admin", "--host", "0.0.0.0", "--port", "0")
    assert (code, "there is no token yet" in err) == (2, True)
    code, secret, _ = await cli("token", "create", "ci", "--role", "operator")
    assert code == 0
    who = await db.tokens.authenticate(secret)
    assert who is not None
    assert (who.name, who.role) == ("ci", "operator")
    _, listed, _ = await cli("token", "list")
    assert "ci" in listed
    assert secret not in listed
    _, link, _ = await cli("token", "login", "--role", "viewer")
    assert link.startswith("http://127.0.0.1:8888/login/")
    assert await db.tokens.redeem_login(link.rpartition("/")[2]) is not None
    assert (await cli("token", "revoke", "ci"))[0] == 0
    assert (await cli("token", "revoke", "ci"))[0] == 3
    assert await db.tokens.authenticate(secret) is None
    actions = [(row["action"], row["outcome"]) for row in await db.tokens.audit()]
    assert actions[::-1] == [
        ("token.create", "done"),
        ("login.create", "done"),
        ("token.revoke", "done"),
        ("token.revoke", "failed"),
    ]
    assert all(row["actor"].startswith("cli:") for row in await db.tokens.audit())


async def test_runs(db: Database, cli: Any) -> None:
    code, id, _ = await cli("runs", "start", "verify", "--city", "delft", "--limit", "5")
    assert code == 0
    code, again, err = await cli("runs", "start", "verify", "--city", "delft", "--limit", "5")
    assert (code, again, err) == (0, id, "the same job is already pending or running")
    assert "verify" in (await cli("runs", "list"))[1]
    assert "{'limit': 5}" in (await cli("runs", "show", id))[1]
    assert await cli("runs", "cancel", id) == (0, "cancelled", "")
    code, out, _ = await cli("runs", "watch", id)
    assert (code, "cancelled: by cli:" in out) == (1, True)
    assert (await cli("runs", "watch"))[1].startswith("no active runs")
    code, new, _ = await cli("runs", "retry", id)
    assert (code, new != id) == (0, True)
    assert (await cli("runs", "cancel", id))[0] == 4
    code, _, err = await cli("runs", "start", "verify", "--city", "atlantis")
    assert (code, "choose one of: amsterdam" in err) == (2, True)
    assert (await cli("runs", "show", "01890000-0000-7000-8000-000000000000"))[0] == 3


async def test_a_worker_that_runs_by_itself_takes_orders(db: Database, cli: Any) -> None:
    await db.execute("INSERT INTO public.workers (id, status) VALUES ('lone', 'active')")
    assert await cli("pause", "lone") == (0, "lone paused", "")
    assert await cli("resume", "lone") == (0, "lone resumed", "")
    assert await cli("drain", "lone") == (0, "lone is draining", "")
    row = await db.workers.get("lone")
    assert row is not None
    assert (row["paused"], row["draining"]) == (False, True)
    code, _, err = await cli("drain", "nobody")
    assert (code, "there is no worker 'nobody'" in err) == (3, True)
    assert [row["action"] for row in await db.tokens.audit()][::-1] == [
        "worker.pause", "worker.resume", "worker.drain", "worker.drain",
    ]  # fmt: skip


async def test_all_means_workers_without_a_supervisor_as_well(db: Database, cli: Any) -> None:
    assert await cli("pause", "--all") == (0, "no worker is running", "")
    await db.workers.register(Member(id="lone", queues=["mail"]))
    assert await cli("pause", "--all") == (0, "lone paused", "")
    assert await cli("resume", "--queue", "mail") == (0, "lone resumed", "")
    assert (await cli("pause", "--queue", "other"))[0] == 4
    code, out, _ = await cli("restart", "--all")
    assert (code, "lone: not restarted" in out) == (0, True)
    row = await db.workers.get("lone")
    assert row is not None
    assert row["paused"] is False


async def test_submit_checks_arguments(db: Database, cli: Any) -> None:
    properties = {"image_id": {"type": "integer"}, "zip": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["image_id"]}
    await db.schemas.publish("w1", [{"name": "img.thumbnail", "schema": schema, "version": None}])
    code, _, err = await cli("submit", "img.thumbnail", "image_id=abc")
    assert code == 2
    assert 'image_id: "abc" does not fit, integer is expected' in err
    code, id, err = await cli("submit", "img.thumbnail", "image_id=7", "zip=1234")
    assert (code, err) == (0, "")
    row = await db.tasks.get(id)
    assert row is not None
    assert row["params"] == {"image_id": 7, "zip": "1234"}
    code, _, err = await cli("submit", "img.thumbnial")
    assert (code, "did you mean img.thumbnail?" in err) == (0, True)
    code, _, err = await cli("schedule", "add", "n", "0 3 * * *", "img.thumbnail", "--params", "{}")
    assert (code, "image_id: it is missing" in err) == (2, True)
