"""The journal's SQL on servers that keep pgvector in a schema of its own."""

from __future__ import annotations

from shiftboss.db.migrate import migrate
from tests.conftest import as_superuser
from tests.db.test_migrate import query


async def test_an_extension_may_live_in_another_schema(bare_database_url: str) -> None:
    """Some hosts install extensions into a schema of their own."""
    make = 'CREATE SCHEMA "Extensions"; CREATE EXTENSION vector SCHEMA "Extensions"; '
    query(as_superuser(bare_database_url), make + 'GRANT USAGE ON SCHEMA "Extensions" TO PUBLIC')
    await migrate(bare_database_url)
    found = "SELECT count(*) FROM journal.search(array_fill(1, ARRAY[256])::\"Extensions\".vector, 'm')"
    assert query(bare_database_url, found) == [(0,)]
