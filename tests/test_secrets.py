"""Planted secrets: a whole fleet runs with them, and none of them is found where others could read it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import httpx
import psutil
import psycopg
import pytest

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.db.server import programs, server_account
from shiftboss.extensions.admin.page.mount import built_in
from shiftboss.model.access import Role
from shiftboss.model.codec import new_key
from shiftboss.model.task import NewTask
from tests.conftest import as_superuser

APP = """
from shiftboss import App, Context

app = App("planted")


@app.task("fails", max_attempts=1)
async def fails() -> None:
    raise RuntimeError("on purpose")


@app.task("asks", max_attempts=1)
async def asks(ctx: Context) -> str:
    return (await ctx.ai.complete("hello")).text
"""


class Fleet(NamedTuple):
    process: subprocess.Popen[bytes]
    log: Path
    environ: dict[str, str]
    secrets: dict[str, str]


@pytest.fixture
def planted(database_url: str, login: str) -> tuple[str, dict[str, str]]:
    """The address of the database for a role with a password to look for, and the other secrets."""
    secrets = {
        "database password": "planted-password-5f2c",
        "API key": "sk-planted-0123456789abcdef",
        "webhook": "planted-hook-4711",
        "signature": "whsec_cGxhbnRlZC1zZWNyZXQtMTIzNDU2",
        "encryption key": new_key(),
        "worker token": "sb_planted-token-of-a-worker",
    }
    parts, owner = urlsplit(login), urlsplit(database_url).username
    with psycopg.connect(as_superuser(database_url), autocommit=True) as conn:
        conn.execute(f"ALTER ROLE {parts.username} PASSWORD '{secrets['database password']}'")
        conn.execute(f"GRANT {owner} TO {parts.username}; ALTER ROLE {parts.username} SET role TO {owner}")
    netloc = f"{parts.username}:{secrets['database password']}@{parts.netloc.rpartition('@')[2]}"
    return urlunsplit(parts._replace(netloc=netloc)), secrets


@pytest.fixture
def fleet(planted: tuple[str, dict[str, str]], tmp_path: Path) -> Iterator[Fleet]:
    url, secrets = planted
    (tmp_path / "planted.py").write_text(APP)
    environ = os.environ | {
        "SHIFTBOSS_DATABASE_URL": url,
        "SHIFTBOSS_DATA_DIR": str(tmp_path / "data"),
        "SHIFTBOSS_AI_PROVIDERS": '["openai", "local"]',
        "SHIFTBOSS_AI_OPENAI_API_KEY": secrets["API key"],
        "SHIFTBOSS_AI_OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "SHIFTBOSS_ALERTS_WEBHOOKS": f'["http://127.0.0.1:9/{secrets["webhook"]}"]',
        "SHIFTBOSS_ALERTS_SECRET": secrets["signature"],
        "SHIFTBOSS_ALERTS_EVERY_SECONDS": "0.5",
        "SHIFTBOSS_ENCRYPTION_KEYS": secrets["encryption key"],
        "SHIFTBOSS_COORDINATOR_TOKEN": secrets["worker token"],
        "SHIFTBOSS_ADMIN_PORT": "0",
        "SHIFTBOSS_COORDINATOR_PORT": "0",
        "PYTHONUNBUFFERED": "1",
    }
    command = [
        sys.executable,
        "-m",
        "shiftboss",
        "up",
        "planted:app",
        "--workers",
        "1",
        "--log-level",
        "debug",
    ]
    with (tmp_path / "log").open("wb") as output:
        options: dict[str, Any] = {
            "stdout": output,
            "stderr": output,
            "cwd": tmp_path,
            "start_new_session": True,
        }
        process = subprocess.Popen(command, env=environ, **options)
        yield Fleet(process, tmp_path / "log", environ, secrets)
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _page_address(fleet: Fleet) -> str | None:
    said = fleet.log.read_text()
    assert fleet.process.poll() is None, said
    found = re.search(r"http://127\.0\.0\.1:\d+", said)
    return found[0] if found else None


def _process_list(pid: int) -> str:
    found = []
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return "\n".join(found)


def _commands(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What commands print, those that fail as well."""
    for name, value in fleet.environ.items():
        if name.startswith("SHIFTBOSS_"):
            monkeypatch.setenv(name, value)
    for words in (
        ["config"],
        ["config", "--json"],
        ["doctor", "--json"],
        ["db", "status"],
        ["token", "list"],
    ):
        main(words)
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", fleet.environ["SHIFTBOSS_DATABASE_URL"] + "_gone")
    assert main(["status"]) == 5
    said = capsys.readouterr()
    return said.out + said.err


@pytest.mark.timeout(300)
async def test_planted_secrets_are_found_nowhere(
    fleet: Fleet,
    database_url: str,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address = await eventually(lambda: _page_address(fleet), 60)
    places: dict[str, str] = {}
    async with await Database.open(database_url) as db:
        token = await db.tokens.create_token("looks", Role.ADMIN)
        fleet.secrets["admin token"] = token
        made = await db.tasks.enqueue([NewTask(task_type=name) for name in ("fails", "asks")])
        await eventually(lambda: _tried(db, [one.id for one in made]), 60)
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        session = await client.post("/login", data={"token": token})
        assert session.status_code == 303
        for path in [page.path for page in built_in() if "{" not in page.path] + [
            "/metrics",
            f"/tasks/{made[0].id}",
        ]:
            answer = await client.get(
                path, headers={"Authorization": f"Bearer {token}", "Accept": "text/html"}
            )
            assert answer.status_code == 200, path
            places[path] = answer.text
        fleet.secrets["session"] = client.cookies["shiftboss_session"]
    places["process list"] = _process_list(fleet.process.pid)
    places["commands"] = await asyncio.to_thread(_commands, fleet, monkeypatch, capsys)
    places["dump"] = subprocess.run(
        [programs(server_account()) / "pg_dump", as_superuser(database_url)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    places["log"] = fleet.log.read_text()
    assert "planted:app" in places["process list"]
    assert "shiftboss worker" in places["process list"].replace("-m shiftboss", "shiftboss")
    found = [
        (name, place)
        for name, secret in fleet.secrets.items()
        for place, text in places.items()
        if secret in text
    ]
    assert found == []


async def _tried(db: Database, ids: list[Any]) -> bool:
    """One has failed, and the other has asked the provider that does not answer."""
    [one, other] = [await db.tasks.get(id) for id in ids]
    assert one is not None
    assert other is not None
    return one["status"] == "Failed" and other["generation_started_at"] is not None


def test_the_password_is_not_an_argument_of_psql(planted: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    url, secrets = planted
    command = [sys.executable, "-m", "shiftboss", "db", "shell", "--", "-Atc", "SELECT 'in', pg_sleep(3)"]
    environ = os.environ | {"SHIFTBOSS_DATABASE_URL": url}
    process = subprocess.Popen(command, env=environ, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    seen, ends = "", time.monotonic() + 60
    while "psql" not in seen and process.poll() is None and time.monotonic() < ends:
        seen = _process_list(process.pid)
    out, _ = process.communicate(timeout=60)
    assert out.startswith("in"), "it did log in"
    assert "psql" in seen
    assert secrets["database password"] not in seen
