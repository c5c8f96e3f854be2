"""Tokens, sessions, login codes and the audit log."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from shiftboss.db.connection import Row
from shiftboss.model.access import Forbidden, Principal, Role

if TYPE_CHECKING:
    from shiftboss.db.database import Database

PREFIX = "sb_"


class Tokens:
    """Access tokens. Secrets have 256 random bits and are stored as hashes."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._audits = False

    async def create_token(self, name: str, role: Role, lifetime: timedelta | None = None) -> str:
        """Create a token and return its secret, which cannot be read again."""
        secret = PREFIX + secrets.token_urlsafe(32)
        await self._store(secret, name, role, lifetime, "token", None)
        return secret

    async def create_session(self, principal: Principal, lifetime: timedelta) -> str:
        """Create a browser session and return its secret. It ends with the principal's token."""
        secret = secrets.token_urlsafe(32)
        await self._store(secret, principal.name, principal.role, lifetime, "session", principal.id)
        return secret

    async def _store(
        self, secret: str, name: str, role: Role, lifetime: timedelta | None, kind: str, parent: UUID | None
    ) -> None:
        await self._db.call("create_token", name, role.value, _hash(secret), lifetime, kind, parent)

    async def authenticate(self, secret: str) -> Principal | None:
        """Return the principal of a token or session, or None if it is unknown, revoked or expired."""
        row = await self._db.fetch_one("SELECT * FROM shiftboss.authenticate(%s)", [_hash(secret)])
        return Principal(row["name"], Role(row["role"]), row["id"], row["kind"]) if row else None

    async def revoke_token(self, which: str) -> int:
        """Revoke tokens by id or name. Return their number."""
        return await self._db.call_value(int, "revoke_token", which)

    async def has_tokens(self) -> bool:
        """Return whether a token was ever created. From then on services require one."""
        return await self._db.call_value(bool, "has_tokens")

    async def create_login(self, name: str, role: Role, lifetime: timedelta) -> str:
        """Create a login code that works once."""
        code = secrets.token_urlsafe(32)
        await self._db.call("create_login", _hash(code), name, role.value, lifetime)
        return code

    async def redeem_login(self, code: str) -> Principal | None:
        """Redeem a login code. Returns None if it is unknown, used or expired."""
        row = await self._db.fetch_one("SELECT * FROM shiftboss.redeem_login(%s)", [_hash(code)])
        return Principal(row["name"], Role(row["role"])) if row else None

    async def require_audit(self) -> None:
        """Refuse a database role that could change the fleet but not record it in the audit log."""
        if self._audits:
            return
        query = "SELECT current_user AS role, has_table_privilege('shiftboss.audit', 'INSERT') AS allowed"
        row = await self._db.fetch_one(query)
        assert row is not None
        if not row["allowed"]:
            raise Forbidden(
                f"the database role {row['role']!r} cannot write the audit log, so it changes nothing",
                hint=f"`shiftboss db roles operator {row['role']}` prints the grants;"
                " to submit tasks, the kind enqueue is sufficient",
            )
        self._audits = True

    async def record(
        self,
        who: Principal,
        action: str,
        target: str | None,
        outcome: str,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Append an entry to the audit log."""
        await self._db.call("record", who.name, who.role.value, action, target, outcome, details or {})

    async def audit(self, limit: int = 100, before: int | None = None) -> list[Row]:
        """Return the audit log, newest entries first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.audit WHERE (%(before)s::bigint IS NULL OR id < %(before)s)"
            " ORDER BY id DESC LIMIT %(limit)s",
            {"before": before, "limit": limit},
        )

    async def list(self) -> list[Row]:
        """Return all tokens, newest first, without sessions."""
        return await self._db.fetch(
            "SELECT id, name, role, created_at, expires_at, last_used_at, revoked_at"
            " FROM shiftboss.access_tokens WHERE kind = 'token' ORDER BY created_at DESC, id"
        )


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
