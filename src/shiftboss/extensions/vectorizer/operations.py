"""Operations on vectorizers."""

from __future__ import annotations

from typing import Any

from shiftboss.extensions.vectorizer.store import Vectorizers, Which
from shiftboss.model.access import Principal, Role
from shiftboss.operations import Audited


class VectorizerOperations(Audited):
    """Create, change, pause, retry and drop vectorizers."""

    async def create_vectorizer(self, who: Principal, source: str, options: dict[str, Any]) -> int:
        """Create a vectorizer for a table and return its id."""
        async with self._recorded(who, Role.OPERATOR, "vectorizer.create", source, **options):
            return await self._db.family(Vectorizers).create(source, **options)

    async def update_vectorizer(self, who: Principal, id: Which, options: dict[str, Any]) -> int:
        """Change settings and return the id of the vectorizer, or of its replacement if vectors change."""
        async with self._recorded(who, Role.OPERATOR, "vectorizer.update", id, **options):
            return await self._db.family(Vectorizers).update(id, **options)

    async def pause_vectorizer(self, who: Principal, id: Which) -> None:
        async with self._recorded(who, Role.OPERATOR, "vectorizer.pause", id):
            await self._db.family(Vectorizers).pause(id)

    async def resume_vectorizer(self, who: Principal, id: Which) -> None:
        async with self._recorded(who, Role.OPERATOR, "vectorizer.resume", id):
            await self._db.family(Vectorizers).resume(id)

    async def retry_vectorizer(self, who: Principal, id: Which) -> int:
        async with self._recorded(who, Role.OPERATOR, "vectorizer.retry", id):
            return await self._db.family(Vectorizers).retry(id)

    async def drop_vectorizer(self, who: Principal, id: Which, everything: bool = False) -> None:
        """Drop a vectorizer; with `everything`, its vectors and view as well."""
        async with self._recorded(who, Role.OPERATOR, "vectorizer.drop", id, everything=everything or None):
            await self._db.family(Vectorizers).drop(id, everything)
