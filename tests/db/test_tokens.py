"""Tokens are stored as hashes and end when revoked or expired; login codes work once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from shiftboss.db import Database
from shiftboss.model.access import Forbidden, Principal, Role
from shiftboss.model.errors import DatabaseError


async def test_a_token_opens_until_it_is_revoked(db: Database) -> None:
    secret = await db.tokens.create_token("ci", Role.OPERATOR)
    who = await db.tokens.authenticate(secret)
    assert who is not None
    assert (who.name, who.role) == ("ci", Role.OPERATOR)
    assert await db.tokens.authenticate(secret + "x") is None
    assert await db.tokens.has_tokens()
    assert await db.tokens.revoke_token("ci") == 1
    assert await db.tokens.authenticate(secret) is None
    assert await db.tokens.has_tokens(), "access does not open again"


async def test_the_database_never_holds_the_secret(db: Database) -> None:
    secret = await db.tokens.create_token("ci", Role.VIEWER)
    rows = await db.fetch("SELECT row_to_json(t)::text AS text FROM shiftboss.access_tokens t")
    assert all(secret.removeprefix("sb_") not in row["text"] for row in rows)


async def test_a_session_ends_with_its_token(db: Database) -> None:
    who = await db.tokens.authenticate(await db.tokens.create_token("ann", Role.ADMIN))
    assert who is not None
    session = await db.tokens.create_session(who, timedelta(hours=1))
    assert (await db.tokens.authenticate(session) or who).kind == "session"
    await db.tokens.revoke_token("ann")
    assert await db.tokens.authenticate(session) is None


async def test_an_expired_token_opens_nothing(db: Database) -> None:
    secret = await db.tokens.create_token("old", Role.ADMIN, timedelta(seconds=-1))
    assert await db.tokens.authenticate(secret) is None


async def test_names_are_unique_while_live(db: Database) -> None:
    await db.tokens.create_token("ci", Role.VIEWER)
    with pytest.raises(DatabaseError, match="already"):
        await db.tokens.create_token("ci", Role.VIEWER)
    await db.tokens.revoke_token("ci")
    await db.tokens.create_token("ci", Role.VIEWER)


async def test_a_login_code_works_once(db: Database) -> None:
    code = await db.tokens.create_login("up", Role.ADMIN, timedelta(minutes=5))
    found = await asyncio.gather(*(db.tokens.redeem_login(code) for _ in range(8)))
    assert [who for who in found if who] == [Principal("up", Role.ADMIN)]
    late = await db.tokens.create_login("up", Role.ADMIN, timedelta(seconds=-1))
    assert await db.tokens.redeem_login(late) is None


def test_a_worker_token_may_not_look() -> None:
    with pytest.raises(Forbidden):
        Principal("w", Role.WORKER).require(Role.VIEWER)
    Principal("a", Role.ADMIN).require(Role.OPERATOR)
