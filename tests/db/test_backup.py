"""Backups of a busy fleet, restored by the commands of docs/how-to/backup-and-restore.md: no task is lost."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.migrate import migrate
from shiftboss.db.programs import programs, server_account
from shiftboss.model.errors import DatabaseError
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource
from tests import servers
from tests.conftest import as_superuser, database
from tests.replicas import Node

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/how-to/backup-and-restore.md").read_text()
COUNTS = "SELECT status, count(*) FROM tasks GROUP BY status"
Eventually = Callable[..., Any]


def block(begins: str, language: str = "sh") -> str:
    """The commands of the guide that begin so."""
    found = [
        text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if text.startswith(begins)
    ]
    assert len(found) == 1, begins
    return str(found[0])


def tools() -> Path:
    return servers.debian_programs() if os.environ.get(servers.ODD) else programs(server_account())


@asynccontextmanager
async def busy(url: str, name: str = "busy", more: bool = True) -> AsyncIterator[None]:
    """A worker on that database and, with `more`, somebody who keeps enqueuing."""
    handlers = Handlers()

    @handlers.task("work")
    async def work() -> None:
        await asyncio.sleep(0.02)

    settings = WorkerSettings(beat_seconds=0.3, poll_seconds=0.2, lease_seconds=5, concurrency=8)
    member = Member(
        id=name, capabilities=Capabilities(task_types=["work"]), incarnation=uuid4(), lease_seconds=5
    )
    async with (
        await Database.open(url) as db,
        Worker(DatabaseSource(db), handlers, member, settings, db=db),
    ):
        pouring = asyncio.create_task(pour(db)) if more else None
        try:
            yield
        finally:
            if pouring is not None:
                pouring.cancel()


async def pour(db: Database) -> None:
    while True:
        try:
            await db.tasks.enqueue([NewTask(task_type="work") for _ in range(5)])
        except DatabaseError:
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.02)


def counts(url: str) -> dict[str, int]:
    with psycopg.connect(url, autocommit=True) as conn:
        return dict(conn.execute(COUNTS).fetchall())


def all_complete(url: str) -> bool:
    """Whether every task is; what a worker of the lost time held is rescued, as a leader does."""
    try:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("SELECT shiftboss.rescue()")
        return set(counts(url)) == {"Complete"}
    except psycopg.OperationalError:
        return False


def sh(text: str, folder: Path, **variables: str) -> str:
    """Run commands as a reader of the guide does: with our program and PostgreSQL's on the path."""
    shim = folder / "bin" / "shiftboss"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shiftboss "$@"\n')
    shim.chmod(0o755)
    env = os.environ | {
        "PATH": f"{shim.parent}:{tools()}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    env |= {"SHIFTBOSS_DATA_DIR": str(folder / "data")} | variables
    done = subprocess.run(
        ["sh", "-ec", text], cwd=folder, env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.session
async def test_a_dump_of_a_busy_fleet_waits_to_be_adopted(
    database_url: str, tmp_path: Path, eventually: Eventually
) -> None:
    name = f"copy_{uuid4().hex[:8]}"
    copy = database(database_url, name)
    superuser = as_superuser(database_url)

    def here(text: str) -> str:
        text = text.replace("OWNER fleet", f"OWNER {urlsplit(database_url).username}")
        text = text.replace("postgresql://postgres@db.internal/postgres", superuser)
        text = text.replace("postgresql://postgres@db.internal/restored", database(superuser, name))
        text = text.replace("postgresql://fleet@db.internal/restored", copy).replace("restored", name)
        return re.sub("shiftboss db roles .*", "", text)  # the server of the tests has no such role

    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("SELECT shiftboss.identify()")  # as every process of a fleet does when it starts
    async with busy(database_url):
        await eventually(lambda: counts(database_url).get("Complete", 0) >= 30, 60)
        await asyncio.to_thread(sh, here(block("pg_dump")), tmp_path, SHIFTBOSS_DATABASE_URL=database_url)
    try:
        assert "copy" in sh(
            here(block("export SHIFTBOSS_DATABASE_URL")), tmp_path, SHIFTBOSS_DATABASE_URL=database_url
        )
        at_dump = counts(copy)
        assert at_dump["Complete"] >= 30
        with pytest.raises(AssertionError, match="db adopt"):
            sh("shiftboss worker shiftboss.app:fleet", tmp_path, SHIFTBOSS_DATABASE_URL=copy)
        said = sh(block("shiftboss queues pause"), tmp_path, SHIFTBOSS_DATABASE_URL=copy)
        assert "adopted as a copy" in said
        identity = re.search(r"this fleet is (\S+)", said)
        assert identity is not None
        assert identity[1] in sh(block("shiftboss db status"), tmp_path, SHIFTBOSS_DATABASE_URL=copy)
        async with busy(copy, "other", more=False):
            await eventually(lambda: all_complete(copy), 60)
        assert counts(copy) == {"Complete": sum(at_dump.values())}
    finally:
        with psycopg.connect(as_superuser(database_url), autocommit=True) as conn:
            conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


class Archived:
    """A server that archives its log, as the guide sets it up, in folders of the test."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.backup, self.srv = place / "backup", place / "srv"
        self.node = Node(place / "primary", tools())
        self.url = f"postgresql://app@127.0.0.1:{self.node.port}/app"

    def here(self, text: str) -> str:
        return text.replace("/backup", str(self.backup)).replace("/srv", str(self.srv))

    def start(self) -> None:
        for folder in (self.node.place, self.backup, self.backup / "wal", self.srv):
            folder.mkdir()
        node = self.node
        node.run("initdb", "-D", node.data, "-U", "postgres", "--auth=trust", "--no-sync")
        plain = f"port = {node.port}\nunix_socket_directories = ''\nfsync = off\n"
        with (node.data / "postgresql.conf").open("a") as file:
            file.write(plain + self.here(block("archive_mode", "ini")))
        servers.own(self.backup)
        node.start()
        node.ask("CREATE ROLE app LOGIN")
        node.ask("CREATE DATABASE app OWNER app")

    def run(self, text: str) -> None:
        """Commands of the guide, as the account of the server."""
        login = f'export PGHOST=127.0.0.1 PGPORT={self.node.port} PGUSER=postgres PATH={shlex.quote(str(tools()))}:"$PATH"\n'
        account = servers.own(self.place)
        servers.run(["sh", "-ec", login + self.here(text)], account)


@pytest.fixture
def archived() -> Iterator[Archived]:
    place = Path(tempfile.mkdtemp(prefix="shiftboss-backup-", dir=servers.in_memory()))
    place.chmod(0o755)
    made = Archived(place)
    try:
        made.start()
        yield made
    finally:
        made.node.kill()
        if (made.srv / "postgres" / "postmaster.pid").exists():
            made.run("pg_ctl --pgdata=/srv/postgres --mode=immediate stop")
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.timeout(180)
async def test_a_busy_fleet_goes_on_after_point_in_time_recovery(
    archived: Archived, eventually: Eventually
) -> None:
    url, node = archived.url, archived.node
    await migrate(url)
    async with busy(url):
        await eventually(lambda: counts(url).get("Complete", 0) >= 20, 60)
        await asyncio.to_thread(archived.run, block("pg_basebackup"))
        before = counts(url)["Complete"]
        await eventually(lambda: counts(url)["Complete"] >= before + 20, 60)
        target = str(node.ask("SELECT clock_timestamp()")[0][0])
        known = node.ask(f"SELECT id FROM tasks WHERE created_at < '{target}'", "app")
        await eventually(lambda: counts(url)["Complete"] >= before + 40, 60)
        [(segment,)] = node.ask("SELECT pg_walfile_name(pg_switch_wal())")
        node.wait(f"SELECT 1 FROM pg_stat_archiver WHERE last_archived_wal >= '{segment}'")
        await asyncio.to_thread(node.kill)
        commands = re.sub(
            r"recovery_target_time = '.*'", f"recovery_target_time = '{target}'", block("cp -R")
        )
        await asyncio.to_thread(archived.run, commands)
        node.wait("SELECT 1 WHERE NOT pg_is_in_recovery()")
        restored = {id for (id,) in node.ask("SELECT id FROM tasks", "app")}
        assert {id for (id,) in known} <= restored  # and the worker goes on by itself
        await eventually(
            lambda: node.ask(
                "SELECT 1 FROM tasks WHERE generation_started_at > now() - interval '1 s'", "app"
            ),
            60,
        )
    async with busy(url, "other", more=False):
        await eventually(lambda: all_complete(url), 60)
    ended = {id for (id,) in node.ask("SELECT id FROM tasks WHERE status = 'Complete'", "app")}
    assert restored <= ended
