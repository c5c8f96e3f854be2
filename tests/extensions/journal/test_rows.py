"""The declared rows of the journal match what its SQL functions return."""

from __future__ import annotations

from typing import Any

from shiftboss.db import Database
from shiftboss.extensions.ai.providers.local import multilingual
from shiftboss.extensions.journal import rows
from tests.db.test_rows import check

from .conftest import CountingAI, sample, write


def check_all(found: list[Any], kind: Any) -> None:
    assert found
    for row in found:
        check(row, kind)


async def test_rows_about_entries(db: Database) -> None:
    check_all(await write(db, *sample("mara")[:2]), rows.Stored)
    check_all(await db.journal.unprocessed(), rows.Revision)
    check_all(await db.journal.load_entries(await db.journal.entry_ids()), rows.LoadedEntry)
    check_all(await db.journal.entries(), rows.Entry)


async def test_rows_about_findings(analysed: Database, ai: CountingAI) -> None:
    journal = analysed.journal
    check_all(await journal.load_entries(await journal.entry_ids("mara")), rows.LoadedEntry)
    check_all(await journal.entries("mara"), rows.Entry)
    check_all(await journal.history("mara"), rows.AnalysedEntry)
    check_all([await journal.user("mara")], rows.Owner)
    check_all(list((await journal.user_results("mara")).values()), rows.UserResult)
    check_all(await journal.insights("mara"), rows.Insight)
    check_all(await journal.references_of("mara"), rows.Reference)
    check_all(await journal.relations("mara"), rows.Relation)
    check_all(await journal.entities("mara"), rows.Entity)
    check_all(await journal.mood("mara"), rows.Mood)
    check_all(await journal.status(), rows.Writer)
    asked = await ai.embed(["rain"], model=multilingual.MODEL)
    check_all(await journal.search(asked.vectors[0].tolist(), asked.model), rows.Found)
