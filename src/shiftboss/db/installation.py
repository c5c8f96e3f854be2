"""The identity of a fleet, and whether its database is a copy of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

from shiftboss.db.family import Family
from shiftboss.model.errors import AdoptionNeeded

if TYPE_CHECKING:
    from shiftboss.db.connection import Connection

HINT = (
    "run `shiftboss db adopt --copy` to make it a separate fleet,"
    " or `shiftboss db adopt --moved` if the original is gone permanently"
)


class Identity(NamedTuple):
    """The identity of a fleet and of the server that stores it."""

    id: UUID
    server: str
    """The server's address, as seen by this process and by the server itself."""
    foreign_because: str | None
    """Why this database may be a copy, or None if the identity was created here."""

    @property
    def serves(self) -> str:
        """A key that differs between a fleet and its copies on other servers."""
        return f"{self.id} {self.server}"


class Installation(Family):
    async def identify(self) -> Identity:
        """Return the stored identity, even in a copy."""
        async with self._db.connection() as conn:
            return await identify(conn)

    async def own(self) -> Identity:
        """Return the identity for a process that joins the fleet. Raises AdoptionNeeded in a copy."""
        found = await self.identify()
        if found.foreign_because is not None:
            raise AdoptionNeeded(f"this database is a copy of another: {found.foreign_because}", hint=HINT)
        return found


async def identify(conn: Connection) -> Identity:
    row = await (await conn.execute("SELECT * FROM shiftboss.identify()")).fetchone()
    assert row is not None
    seen = f"{conn.info.hostaddr or conn.info.host}:{conn.info.port}"
    return Identity(row["identity"], f"{seen} {row['server']}", row["foreign_because"])


async def adopt(conn: Connection, as_: Literal["copy", "moved"], *, force: bool = False) -> UUID:
    """Declare a restored database another fleet, or the same fleet in a new place; return its identity."""
    row = await (await conn.execute("SELECT shiftboss.adopt(%s, %s) AS id", [as_, force])).fetchone()
    assert row is not None
    id: UUID = row["id"]
    return id
