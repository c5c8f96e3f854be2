"""Operations on journals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from shiftboss.extensions.journal.commands import Imported, delete, erase, import_entries, process
from shiftboss.extensions.journal.reading import read
from shiftboss.model.access import Principal, Role
from shiftboss.operations import Audited


class JournalOperations(Audited):
    """Imports, analyses and deletes entries."""

    async def delete_entry(self, who: Principal, ident: str, user: str | None = None) -> list[UUID]:
        """Delete an entry and its results, and return the tasks that update the findings."""
        async with self._recorded(who, Role.OPERATOR, "journal.delete", ident):
            return await delete(self._db, ident, user)

    async def erase_journal(self, who: Principal, user: str) -> int:
        """Delete a writer with all entries and findings, and return the number of entries."""
        async with self._recorded(who, Role.OPERATOR, "journal.erase", user):
            return await erase(self._db, user)

    async def process_journal(
        self, who: Principal, user: str | None = None, again: Sequence[str] = ()
    ) -> list[UUID]:
        """Enqueue the analysis of entries that are not analysed yet, and compute the results `again`."""
        async with self._recorded(who, Role.OPERATOR, "journal.process", user or "all"):
            return await process(self._db, user, again=again)

    async def import_journal(
        self,
        who: Principal,
        files: Sequence[Path],
        user: str | None = None,
        *,
        process: bool = True,
        on_progress: Callable[[Imported], None] = lambda imported: None,
    ) -> Imported:
        """Store the entries of files, and enqueue the analysis of new and changed ones if `process`."""
        names = ", ".join(file.name for file in files)
        async with self._recorded(who, Role.OPERATOR, "journal.import", names, user=user):
            entries = read(files, user=user)
            return await import_entries(self._db, entries, process=process, on_progress=on_progress)
