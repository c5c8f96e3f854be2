"""Which fleet a database is, and whether it is still where it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

from shiftboss.model.errors import AdoptionNeeded

if TYPE_CHECKING:
    from shiftboss.db.connection import Connection
    from shiftboss.db.database import Database

HINT = (
    "`shiftboss db adopt --copy` makes it a fleet of its own;"
    " `shiftboss db adopt --moved` if the original is gone for good"
)


class Identity(NamedTuple):
    """The fleet that a database is, and the server that holds it."""

    id: UUID
    server: str
    """Its address, as this process and as the server itself sees it."""
    foreign_because: str | None
    """Why the identity may be another database's. None: it was made here."""

    @property
    def serves(self) -> str:
        """What a worker process of this fleet serves; a copy on another server is something else."""
        return f"{self.id} {self.server}"


class Installation:
    """Everything that can be asked of `shiftboss.installation`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def identify(self) -> Identity:
        """The identity as it is stored, whether it fits or not."""
        async with self._db.connection() as conn:
            return await identify(conn)

    async def own(self) -> Identity:
        """The identity, for a process of the fleet to act under. Raises AdoptionNeeded in a copy."""
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
