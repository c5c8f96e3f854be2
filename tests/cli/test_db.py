"""`shiftboss db` as a shell uses it, on a server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from shiftboss.db.embedded import EmbeddedServer


class Shell:
    def __init__(self, data_dir: Path) -> None:
        self.server = EmbeddedServer(data_dir, settings={"fsync": "off", "shared_buffers": "16MB"})

    def __call__(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "shiftboss", "db", *args],
            capture_output=True,
            text=True,
            env=os.environ | {"SHIFTBOSS_DATA_DIR": str(self.server.data_dir)} | env,
            check=False,
        )


@pytest.fixture
def db_command(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "data")
    yield shell
    shell.server.release()
    shell.server.stop()


def test_the_printed_url_opens_the_server(db_command: Shell) -> None:
    url = db_command("url", SHIFTBOSS_DATABASE_LINGER_SECONDS="600").stdout.strip()
    with psycopg.connect(url) as conn:  # the server lingers long enough for this
        assert conn.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


def test_a_started_server_stays_until_it_is_stopped(db_command: Shell) -> None:
    assert "until `shiftboss db stop`" in db_command("start").stdout
    before = db_command.server.running()
    assert before is not None
    assert str(before.port) in db_command("url").stdout
    assert db_command("status").returncode == 0
    assert db_command.server.running() == before
    assert db_command("stop").stdout == "stopped\n"
    assert db_command.server.running() is None


def test_migrate_status_shell_stop(db_command: Shell) -> None:
    assert "not running" in db_command("status").stdout
    url = db_command.server.acquire()
    status = db_command("status")
    assert "not current, run `shiftboss db migrate`" in status.stdout
    assert status.returncode == 1, "the probes of containers use it"

    shown = db_command("migrate", "--dry-run").stdout
    assert "CREATE TABLE IF NOT EXISTS public.tasks" in shown
    assert "applied 0000_legacy, 0001_core" in db_command("migrate").stdout
    again = db_command("migrate")
    assert "no new migrations" in again.stdout
    assert "this is the embedded server" in again.stderr

    status = db_command("status")
    assert "schema: current" in status.stdout
    assert status.returncode == 0
    assert url.split("@")[0] not in status.stdout  # no password on the screen

    counted = db_command("shell", "--", "-Atc", "SELECT count(*) FROM tasks")
    assert (counted.returncode, counted.stdout) == (0, "0\n")
    assert db_command("shell", "--", "-c", "nonsense").returncode != 0

    assert db_command("stop").stdout == "stopped\n"
    assert db_command("stop").stdout == "the server was not running\n"


def test_status_tells_whose_database_it_is(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project" / "deep"
    project.mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if key != "XDG_DATA_HOME"} | {
        "HOME": str(home)
    }
    source = str(Path(__file__).resolve().parents[2] / "src")

    def status() -> str:
        command = [sys.executable, "-m", "shiftboss", "db", "status"]
        env = environment | {"PYTHONPATH": source}
        return subprocess.run(
            command, capture_output=True, text=True, env=env, cwd=project, check=True
        ).stdout

    assert "all your projects share this server" in status()
    (project.parent / "shiftboss.toml").write_text('data_dir = ".shiftboss"')
    assert (
        status() == f"embedded server in {project.parent / '.shiftboss'}: not running\n"
    )  # the file's folder, not ours


def test_reset_asks_first(db_command: Shell) -> None:
    with psycopg.connect(db_command.server.acquire(), autocommit=True) as conn:
        conn.execute("CREATE TABLE kept ()")
    refused = db_command("reset")
    assert refused.returncode != 0
    assert db_command.server.running()
    assert db_command("reset", "--yes").returncode == 0
    with psycopg.connect(db_command.server.acquire()) as conn:
        assert conn.execute("SELECT to_regclass('kept')").fetchone() == (None,)


@pytest.mark.parametrize("command", ["stop", "reset"])
def test_a_server_of_yours_is_never_stopped_or_reset(db_command: Shell, command: str) -> None:
    refused = db_command(command, SHIFTBOSS_DATABASE_URL="postgresql://somewhere/else")
    assert refused.returncode == 2
    assert "on the embedded server only" in refused.stderr
