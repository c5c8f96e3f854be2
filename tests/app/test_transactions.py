"""Enqueue in the caller's transaction: after a rollback, the task does not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from shiftboss import App
from shiftboss.model.errors import UsageError

app = App("shop")


@app.task()
async def ship(order: int) -> int:
    return order


class Rollback(Exception):
    pass


@contextmanager
def rolled_back() -> Iterator[None]:
    with pytest.raises(Rollback):
        yield


def queued(url: str) -> list[int]:
    with psycopg.connect(url) as conn:
        rows = conn.execute("SELECT (params ->> 'order')::int FROM tasks ORDER BY 1").fetchall()
    return [order for (order,) in rows]


def alchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


async def test_psycopg_async(database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row) as conn:
        with rolled_back():
            async with conn.transaction():
                await app.enqueue(ship.call(1), conn=conn)
                raise Rollback
        async with conn.transaction():
            handle = await app.enqueue(ship.call(2), conn=conn)
            assert queued(database_url) == []
    assert queued(database_url) == [2]
    assert handle.created


def test_psycopg_sync(database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        with rolled_back(), conn.transaction():
            app.sync.enqueue(ship.call(1), conn=conn)
            raise Rollback
        with conn.transaction():
            app.sync.enqueue(ship.call(2), ship.call(3), conn=conn)
    assert queued(database_url) == [2, 3]


def test_sqlalchemy_session_and_connection(database_url: str) -> None:
    engine = sqlalchemy.create_engine(alchemy(database_url))
    with rolled_back(), Session(engine) as session, session.begin():
        app.sync.enqueue(ship.call(1), conn=session)
        raise Rollback
    with Session(engine) as session, session.begin():
        app.sync.enqueue(ship.call(2), conn=session)
    with engine.begin() as conn:
        app.sync.enqueue(ship.call(3), conn=conn)
    engine.dispose()
    assert queued(database_url) == [2, 3]


async def test_sqlalchemy_async(database_url: str) -> None:
    engine = create_async_engine(alchemy(database_url))
    with rolled_back():
        async with AsyncSession(engine) as session, session.begin():
            await app.enqueue(ship.call(1), conn=session)
            raise Rollback
    async with AsyncSession(engine) as session, session.begin():
        await app.enqueue(ship.call(2), conn=session)
    async with engine.begin() as conn:
        await app.enqueue(ship.call(3), conn=conn)
    await engine.dispose()
    assert queued(database_url) == [2, 3]


def test_django(database_url: str) -> None:
    connection = django_connection(database_url)
    from django.db import transaction

    with rolled_back(), transaction.atomic():
        app.sync.enqueue(ship.call(1), conn=connection)
        raise Rollback
    with transaction.atomic():
        app.sync.enqueue(ship.call(2), conn=connection)
        assert queued(database_url) == []
    connection.close()
    assert queued(database_url) == [2]


def django_connection(url: str):  # type: ignore[no-untyped-def]
    import django
    from django.conf import settings

    parts = psycopg.conninfo.conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "PASSWORD": parts["password"],
        "HOST": parts["host"],
        "PORT": parts["port"],
    }
    settings.configure(DATABASES={"default": database})
    django.setup()
    from django.db import connection

    return connection


async def test_a_connection_of_the_wrong_kind_is_told_so(database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        with pytest.raises(UsageError, match="not an async database connection") as caught:
            await app.enqueue(ship.call(1), conn=conn)
        assert "app.sync" in (caught.value.hint or "")
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        with pytest.raises(UsageError, match="not a synchronous database connection"):
            app.sync.enqueue(ship.call(1), conn=other)
    with pytest.raises(UsageError):
        app.sync.enqueue(ship.call(1), conn="postgresql://")


def test_the_sync_facade_waits_and_cancels(database_url: str) -> None:
    with app.sync.worker():
        assert app.sync.enqueue(ship.call(7)).result(timeout=30) == 7
    waiting = app.sync.enqueue(ship.call(8))
    waiting.cancel()
    assert waiting.status() == "Cancelled"
    app.sync.close()
