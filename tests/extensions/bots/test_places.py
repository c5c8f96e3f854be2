"""The table of the bots."""

from __future__ import annotations

import pytest

from shiftboss.db.connection import connect
from shiftboss.db.migrate import migrate
from shiftboss.model.errors import MigrationError


async def test_a_foreign_table_is_named(empty_database_url: str) -> None:
    async with connect(empty_database_url) as conn:
        await conn.execute("CREATE TABLE public.places (number serial, salary numeric)")
    with pytest.raises(MigrationError, match=r"public\.places existed before"):
        await migrate(empty_database_url)
