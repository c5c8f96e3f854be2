"""A restored database is recognised as a copy, and no process runs on it until it is adopted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.db.programs import programs, server_account
from shiftboss.model.errors import AdoptionNeeded, DatabaseError
from shiftboss.model.worker import Member
from tests.conftest import as_superuser

PROCESSES = (
    ["worker", "shiftboss.app:fleet"],
    ["supervise", "shiftboss.app:fleet", "--queue", "q=1"],
    ["coordinator", "--port", "0", "--no-token"],
    ["up", "--workers", "1", "--port", "0"],
)


@pytest.fixture
def restored(database_url: str, empty_database_url: str) -> str:
    """Another database, made from a dump of `database_url`."""
    with psycopg.connect(database_url) as conn:
        conn.execute("SELECT shiftboss.identify()")
    tools = programs(server_account())
    dump = subprocess.run([tools / "pg_dump", as_superuser(database_url)], check=True, capture_output=True)
    subprocess.run(
        [tools / "psql", "-q", "-v", "ON_ERROR_STOP=1", as_superuser(empty_database_url)],
        input=dump.stdout,
        check=True,
        capture_output=True,
    )
    return empty_database_url


def shiftboss(url: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"SHIFTBOSS_DATABASE_URL": url, "SHIFTBOSS_DATA_DIR": str(folder), "PYTHONPATH": "src"}
    return subprocess.run(
        [sys.executable, "-m", "shiftboss", *words],
        env=os.environ | env,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def identities(*urls: str) -> list[str]:
    found = []
    for url in urls:
        async with await Database.open(url) as db:
            found.append(str((await db.installation.own()).id))
    return found


async def test_a_database_keeps_its_identity(db: Database, database_url: str) -> None:
    first, second = await identities(database_url, database_url)
    assert first == second
    assert await db.execute("SELECT shiftboss.identify()") == 1


@pytest.mark.timeout(180)
async def test_no_process_starts_on_a_restored_dump(database_url: str, restored: str, tmp_path: Path) -> None:
    for words in PROCESSES:
        said = await asyncio.to_thread(shiftboss, restored, tmp_path, *words)
        assert said.returncode == 10, said.stderr
        assert "it was made in another database" in said.stderr
        assert "shiftboss db adopt --copy" in said.stderr
    with psycopg.connect(restored) as conn:
        assert conn.execute("SELECT FROM workers").fetchall() == []
        assert conn.execute("SELECT FROM shiftboss.leases").fetchall() == []
    assert "copied from another database" in shiftboss(restored, tmp_path, "db", "status").stdout
    assert "processes refuse to start on it" in shiftboss(restored, tmp_path, "doctor").stdout


async def test_a_copy_is_adopted_as_another_fleet(database_url: str, restored: str, tmp_path: Path) -> None:
    with psycopg.connect(restored) as conn:  # what the original's processes left in the dump
        conn.execute("INSERT INTO shiftboss.supervisors (host, pid) VALUES ('here', 1)")
        conn.execute("INSERT INTO health (component, process) VALUES ('worker:q:0', '1:2:3')")
        conn.execute("SELECT shiftboss.acquire_lease('leader', gen_random_uuid(), '{}', interval '1 hour')")
    said = await asyncio.to_thread(shiftboss, restored, tmp_path, "db", "adopt", "--copy")
    assert said.returncode == 0, said.stderr
    original, copy = await identities(database_url, restored)
    assert original != copy
    assert copy in said.stdout
    with psycopg.connect(restored) as conn:
        assert conn.execute("SELECT process FROM health").fetchall() == [(None,)]
        assert conn.execute("SELECT FROM shiftboss.leases").fetchall() == []
        assert conn.execute("SELECT FROM shiftboss.supervisors").fetchall() == []


async def test_a_fleet_that_moved_keeps_its_identity(
    database_url: str, restored: str, tmp_path: Path
) -> None:
    said = await asyncio.to_thread(shiftboss, restored, tmp_path, "db", "adopt", "--moved")
    assert said.returncode == 0, said.stderr
    original, moved = await identities(database_url, restored)
    assert original == moved


async def test_what_it_is_has_to_be_said(database_url: str, tmp_path: Path) -> None:
    for words in ([], ["--copy", "--moved"]):
        said = await asyncio.to_thread(shiftboss, database_url, tmp_path, "db", "adopt", *words)
        assert (said.returncode, "--copy" in said.stderr) == (2, True)


async def test_another_server_is_recognised_by_its_system_identifier(db: Database) -> None:
    await db.installation.own()
    await db.execute("UPDATE shiftboss.installation SET system_identifier = system_identifier + 1")
    with pytest.raises(AdoptionNeeded, match="made on another server"):
        await db.installation.own()


async def test_a_role_that_may_not_read_the_system_identifier_goes_by_the_database(database_url: str) -> None:
    async with await Database.open(as_superuser(database_url)) as db:
        await _without_the_identifier(db)


async def _without_the_identifier(db: Database) -> None:
    await db.installation.own()
    name = f"plain_{os.getpid()}"
    await db.execute(f"CREATE ROLE {name}")
    try:
        await db.execute(f"GRANT USAGE ON SCHEMA shiftboss TO {name}")
        await db.execute(f"GRANT SELECT ON shiftboss.installation TO {name}")
        await db.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        async with db.transaction() as conn:
            await conn.execute(f"SET LOCAL ROLE {name}")
            found = await (await conn.execute("SELECT * FROM shiftboss.identify()")).fetchone()
        assert found is not None
        assert found["foreign_because"] is None
        await db.execute("UPDATE shiftboss.installation SET database_oid = 1")
        async with db.transaction() as conn:
            await conn.execute(f"SET LOCAL ROLE {name}")
            found = await (await conn.execute("SELECT * FROM shiftboss.identify()")).fetchone()
        assert found is not None
        assert found["foreign_because"] == "it was made in another database"
    finally:
        await db.execute(f"DROP OWNED BY {name}")
        await db.execute(f"DROP ROLE {name}")


@pytest.mark.timeout(120)
async def test_a_physical_copy_keeps_its_identity_but_serves_another_address(tmp_path: Path) -> None:
    """And its leader is refused by a server that never heard of the election, as after a failover."""
    first = EmbeddedServer(tmp_path / "first", settings={"fsync": "off"})
    url = await asyncio.to_thread(first.acquire)
    await migrate(url)
    async with await Database.open(url) as db:
        token = await _elected(db)
    first.release()
    await asyncio.to_thread(first.stop)
    subprocess.run(["cp", "-a", tmp_path / "first", tmp_path / "second"], check=True)
    (tmp_path / "second" / "port").unlink()
    second = EmbeddedServer(tmp_path / "second", settings={"fsync": "off"})
    url, copy = await asyncio.gather(asyncio.to_thread(first.acquire), asyncio.to_thread(second.acquire))
    try:
        async with await Database.open(url) as db, await Database.open(copy) as there:
            original, copied = await db.installation.own(), await there.installation.own()
            assert original.id == copied.id
            assert original.serves != copied.serves
            await db.execute("UPDATE shiftboss.leases SET expires_at = now() - interval '1 second'")
            later = await _elected(db)
            with pytest.raises(DatabaseError, match="does not hold"):
                await there.execute("SELECT shiftboss.fence('leader', %s)", [later])
            await there.execute("SELECT shiftboss.fence('leader', %s)", [token])
            await there.execute("SELECT shiftboss.adopt('copy')")
            assert (await there.installation.own()).id != original.id
            await db.workers.register(Member(id="w"))
            with pytest.raises(DatabaseError, match="looks like the original") as error:
                await db.execute("SELECT shiftboss.adopt('copy')")
            assert "--force" in (error.value.hint or "")
            assert (await db.installation.own()).id == original.id
            await db.execute("SELECT shiftboss.adopt('copy', true)")
            assert (await db.installation.own()).id != original.id
    finally:
        for server in (first, second):
            server.release()
            await asyncio.to_thread(server.stop)


async def _elected(db: Database) -> UUID:
    """The token of a leader that is then gone without a word."""
    token = uuid4()
    held = await db.leases.acquire_lease("leader", token, {}, timedelta(hours=1))
    assert held is not None
    assert held.token == token
    return token
