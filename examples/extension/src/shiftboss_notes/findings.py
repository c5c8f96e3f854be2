"""What `shiftboss doctor` says about notes."""

from shiftboss.cli.findings import Finding
from shiftboss.db import Database
from shiftboss.model.settings import Settings
from shiftboss_notes.store import Notes


async def uncounted(db: Database, settings: Settings) -> list[Finding]:
    """One line on how many notes still wait for their count."""
    waiting = sum(row["words"] is None for row in await db.family(Notes).all())
    return [Finding("ok", "notes", f"{waiting} notes wait to be counted")]
