"""SQL injection by names of tables, columns, vectorizers, views and keys."""

from __future__ import annotations

import pytest
from psycopg import sql

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError
from tests.db.test_injection import EVIL

from .conftest import Steered, make, work


@pytest.mark.parametrize("evil", EVIL)
async def test_every_name_of_a_vectorizer(db: Database, steered: Steered, evil: str) -> None:
    table = sql.Identifier(evil, evil).as_string(None)
    column = sql.Identifier(evil).as_string(None)
    await db.execute(f"CREATE SCHEMA {column}".replace("%", "%%"), [])
    await db.execute(f"CREATE TABLE {table} ({column} int PRIMARY KEY, body text)".replace("%", "%%"), [])
    await db.execute(f"INSERT INTO {table} VALUES (1, 'some words')".replace("%", "%%"), [])
    with pytest.raises(DatabaseError, match="identifier"):
        await make(db, table, columns=["body"], destination=f"{evil} store")
    stored, seen = (sql.Identifier(f"{evil[:30]} {word}").as_string(None) for word in ("store", "view"))
    id = await make(db, table, columns=["body"], name=evil[:40], destination=stored, view_name=seen)
    await work(db, steered)
    [found] = await db.fetch("SELECT source_table, view_name FROM ai.vectorizer WHERE id = %s", [id])
    assert await db.vectorizers.pending(id) == 0
    assert await db.vectorizers.errors(id) == []
    await db.vectorizers.drop(id, drop_all=True)
    assert found["source_table"]
    assert await db.fetch("SELECT to_regclass('public.tasks') IS NOT NULL AS there") == [{"there": True}]
