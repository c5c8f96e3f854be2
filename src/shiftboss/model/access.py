"""Who is asking, and what that allows."""

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


# A worker's token opens the coordinator and nothing else.
_RANK = {Role.WORKER: 0, Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}


class Forbidden(ShiftbossError):
    """Known, but not allowed."""


class Principal(NamedTuple):
    """Who acts, and from where. `id` is that of a token or session, None for a user of this machine."""

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
                f"{self.name} is {self.role}, this needs {role}",
                hint=f"ask for a token with the role {role}: shiftboss token create --role {role}",
            )
