"""A named lease has one holder, through a transaction-mode pooler as well, and what is done under it is fenced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.lease import Lease
from shiftboss.lifecycle.processes import known_dead, own_name
from shiftboss.model.errors import DatabaseError
from tests.pooler import needs_pooler, pooler

SCRIPT = """
import asyncio, sys
from shiftboss.db import Database
from shiftboss.db.lease import Lease
from shiftboss.lifecycle.processes import own_name

async def main():
    async with await Database.open(sys.argv[1]) as db:
        print(await Lease(db, "office", 3600, own_name()).acquire(), flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def lease(db: Database, who: str, seconds: float = 60.0, **more: Any) -> Lease:
    return Lease(db, "office", seconds, {"name": who}, **more)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    async with await Database.open(url) as database:
        yield database


@pytest.mark.parametrize("through", ["direct", pytest.param("pooler", marks=needs_pooler)])
async def test_one_holds_it_and_the_next_gets_it_when_it_is_released(database_url: str, through: str) -> None:
    place = pooler(database_url) if through == "pooler" else nullcontext(database_url)
    async with place as url, opened(url) as db:
        first, second = lease(db, "first"), lease(db, "second")
        assert await first.acquire()
        assert not await second.acquire()
        assert (first.held, second.held) == (True, False)
        [row] = await db.under(first).fetch("SELECT 1 AS one")
        assert row == {"one": 1}
        with pytest.raises(DatabaseError, match="does not hold"):
            await db.under(second).execute("SELECT 1")
        await first.release()
        assert await second.acquire()
        assert not await first.acquire()
        await second.release()
        assert await db.leases.all() == []


async def test_an_expired_lease_goes_to_the_next_and_its_former_holder_learns_it(
    db: Database, eventually: Callable[..., Any]
) -> None:
    first, second = lease(db, "first", 2.0), lease(db, "second")
    assert await first.acquire()
    await db.execute("UPDATE shiftboss.leases SET expires_at = now() - interval '1 second'")
    assert await second.acquire()
    await eventually(first.lost.is_set)
    assert not first.held
    await first.release()
    assert second.held
    [row] = await db.leases.all()
    assert row["holder"] == {"name": "second"}
    await second.release()


async def test_a_lease_is_renewed_while_it_is_held(db: Database, eventually: Callable[..., Any]) -> None:
    held = lease(db, "first", 1.0)
    assert await held.acquire()
    [before] = await db.leases.all()

    async def renewed() -> bool:
        [row] = await db.leases.all()
        return bool(row["expires_at"] > before["expires_at"])

    await eventually(renewed)
    assert held.held
    await held.release()


async def test_a_clock_that_was_set_back_does_not_keep_a_lease_for_ever(db: Database) -> None:
    first, second = lease(db, "first"), lease(db, "second")
    assert await first.acquire()
    await db.execute("UPDATE shiftboss.leases SET expires_at = now() + interval '1 year'")
    assert await second.acquire()
    await first.release()
    await second.release()


async def test_the_lease_of_a_process_killed_on_this_machine_is_free_at_once(
    db: Database, database_url: str, eventually: Callable[..., Any]
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, database_url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"True\n"
        mine = Lease(db, "office", 60, own_name(), dead=known_dead)
        assert not await mine.acquire()
    finally:
        process.kill()
        await process.wait()
    assert await mine.acquire()
    await mine.release()


async def test_what_is_done_under_a_lease_keeps_others_from_taking_it(db: Database) -> None:
    """Even an expired one: its holder may be in the middle of a transaction. A renewal does not wait for it."""
    first, second = lease(db, "first"), lease(db, "second")
    assert await first.acquire()
    async with db.under(first).transaction() as conn:
        await conn.execute("SELECT 1")
        async with asyncio.timeout(5):
            assert await db.leases.renew_lease("office", first.token or uuid4())
        await db.execute("UPDATE shiftboss.leases SET expires_at = now() - interval '1 second'")
        assert not await second.acquire()
    assert await second.acquire()
    for name in ("lock_timeout", "idle_in_transaction_session_timeout"):  # a holder that hangs is cut off
        [row] = await db.under(second).fetch("SELECT current_setting(%s) AS most", [name])
        assert row == {"most": "10s"}
    with pytest.raises(DatabaseError, match="does not hold"):
        async with db.under(first).transaction() as conn:
            await conn.execute("DELETE FROM shiftboss.leases")
    assert len(await db.leases.all()) == 1
    await first.release()
    await second.release()


async def test_a_statement_that_fails_under_a_lease_changes_nothing(db: Database) -> None:
    held = lease(db, "first")
    assert await held.acquire()
    with pytest.raises(DatabaseError, match="division by zero"):
        await db.under(held).execute("SELECT shiftboss.note('x'), 1 / 0")
    assert await db.events.latest(kind="x") == []
    assert await db.under(held).execute("SELECT shiftboss.note('x')") == 1
    assert len(await db.events.latest(kind="x")) == 1
    await held.release()


async def test_a_stale_token_is_refused_in_plain_sql(db: Database, database_url: str) -> None:
    """As after a failover that rolled the row back: what counts is the row that is there now."""
    held = lease(db, "first")
    assert await held.acquire()
    with psycopg.connect(database_url) as conn:
        conn.execute("SELECT shiftboss.fence('office', %s)", [held.token])
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            conn.execute("SELECT shiftboss.fence('office', %s)", [uuid4()])
        conn.rollback()
        conn.execute("UPDATE shiftboss.leases SET token = gen_random_uuid()")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            conn.execute("SELECT shiftboss.fence('office', %s)", [held.token])
    await held.release()
