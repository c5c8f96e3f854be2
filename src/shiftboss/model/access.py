"""Principals and the roles that decide what they may do."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from shiftboss.model.errors import ShiftbossError


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    WORKER = "worker"


# A worker's token gives access to tasks only, not to the API.
_RANK = {Role.WORKER: 0, Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}


class Forbidden(ShiftbossError):
    """The principal is authenticated, but its role does not allow the action."""


class Principal(NamedTuple):
    """A user or client that acts, and its origin. `id` is a token's or session's, None for a local user."""

    name: str
    role: Role
    id: UUID | None = None
    kind: str = "token"
    source: str | None = None

    def may(self, role: Role) -> bool:
        return _RANK[self.role] >= _RANK[role]

    def require(self, role: Role) -> None:
        if not self.may(role):
            raise Forbidden(
                f"{self.name} has the role {self.role}; this needs {role}",
                hint=f"ask for a token with the role {role}: shiftboss token create --role {role}",
            )
