"""The embedded server on a full disk: it reports it, loses nothing, and continues when there is space."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, EmbeddedServerError
from shiftboss.model.task import NewTask

Eventually = Callable[..., Awaitable[Any]]
FAST = {"fsync": "off", "shared_buffers": "16MB", "max_wal_size": "64MB", "min_wal_size": "32MB"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")


class Disk:
    """A small file system, and a file that fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                return

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    """`make_disk("8m")`"""
    made: list[Path] = []

    def make(size: str) -> Disk:
        path = tmp_path / f"disk-{size}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
        if subprocess.run(command, check=False).returncode:
            pytest.skip("this container may not mount a tmpfs")
        made.append(path)
        return Disk(path)

    yield make
    for path in made:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def disk(make_disk: Callable[[str], Disk]) -> Disk:
    return make_disk("240m")


@pytest.fixture
def server(disk: Disk) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(disk.path / "data", settings=FAST, linger=0)
    yield server
    server.release()
    server.stop()


def test_too_little_room_for_a_database_says_so(make_disk: Callable[[str], Disk]) -> None:
    with pytest.raises(EmbeddedServerError, match="not enough disk space for a database") as caught:
        EmbeddedServer(make_disk("8m").path / "data").acquire()
    assert "--data-dir" in (caught.value.hint or "")


async def test_a_disk_that_fills_up_loses_nothing(
    disk: Disk, server: EmbeddedServer, eventually: Eventually
) -> None:
    url = server.acquire()
    await migrate(url)
    async with await Database.open(url) as db:
        kept = 0

        async def enqueue() -> None:
            nonlocal kept
            await db.tasks.enqueue([NewTask(task_type="big", params={"text": os.urandom(200_000).hex()})])
            kept += 1

        async def enqueues() -> bool:
            try:
                await enqueue()
            except DatabaseUnavailable:
                return False
            return True

        await enqueue()
        disk.fill()
        with pytest.raises(DatabaseUnavailable) as caught:
            while True:
                await enqueue()
        assert "No space left" in caught.value.message or "closed" in caught.value.message
        disk.free()
        await eventually(enqueues, timeout=60)
        [row] = await db.fetch("SELECT count(*) AS n, min(length(params ->> 'text')) AS shortest FROM tasks")
        assert row == {"n": kept, "shortest": 400_000}


async def test_a_server_that_died_of_it_comes_back_when_there_is_room(
    disk: Disk, server: EmbeddedServer, eventually: Eventually
) -> None:
    url = server.acquire()
    await migrate(url)
    async with await Database.open(url) as db:
        [made] = await db.tasks.enqueue([NewTask(task_type="kept")])
        state = server.running()
        assert state is not None
        disk.fill()
        os.kill(state.postmaster, 9)
        await eventually(lambda: server.running() is None)
        with pytest.raises(EmbeddedServerError, match="not enough disk space") as caught:
            EmbeddedServer(server.data_dir).acquire()
        assert caught.value.hint == "free some space; the existing data is intact"
        disk.free()

        async def found() -> bool:
            try:
                return bool(await db.fetch("SELECT FROM tasks WHERE id = %s", [made.id]))
            except DatabaseError:
                return False

        await eventually(found, timeout=60)
        assert server.url() == url
