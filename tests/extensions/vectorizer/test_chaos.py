"""A short chaos run; `bench/vectorizer_chaos.py` has the long one."""

from __future__ import annotations

from shiftboss.db import Database
from tests.extensions.vectorizer import chaos


async def test_every_row_ends_with_its_own_vector_or_on_the_failed_list(db: Database) -> None:
    verdict = await chaos.run(db, rows=800, kills=3, seed=23)
    assert verdict.bad == []
    assert verdict.checks >= 2 * verdict.rows
