"""Alert rules for vectorizers, and a finding of `shiftboss doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.model.alert import Found, Rule

if TYPE_CHECKING:
    from shiftboss.cli.findings import Finding
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings


async def behind(db: Database, threshold: float) -> list[Found]:
    """Return the vectorizers whose lag exceeds the threshold, except paused ones."""
    return [
        Found(
            row["name"],
            f"vectorizer {row['name']} is {row['lag_seconds']:.0f} s behind",
            "shiftboss vectorizer list",
            row["lag_seconds"],
        )
        for row in await db.family(Vectorizers).lag()
        if row["lag_seconds"] > threshold and not row["paused"]
    ]


RULES = (
    Rule(
        name="vectorizer_behind",
        summary="Rows wait too long for their embeddings",
        threshold=600,
        find=behind,
        expression="max by (vectorizer) (vectorizer_lag_seconds) > $threshold",
        panel="max by (vectorizer) (vectorizer_lag_seconds)",
        unit="s",
    ),
)


async def pgvector(db: Database, settings: Settings) -> list[Finding]:
    """Report that the database has no pgvector, which is optional."""
    from shiftboss.cli.findings import Finding

    server = await db.insights.condition.server()
    if server["vector"] is not None:
        return []
    message = "pgvector is not installed: journal vectors and vectorizers are unavailable"
    there, make = "have a superuser run CREATE EXTENSION vector", "install pgvector on the server"
    advice = f"{there if server['vector_available'] else make}, then shiftboss db migrate"
    return [Finding("ok", "database", message, f"to use them, {advice}")]
