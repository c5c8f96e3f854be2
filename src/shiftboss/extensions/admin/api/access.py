"""Tokens, sessions and the audit log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import Field

from shiftboss.extensions.admin.access import ADMINS_ONLY, COOKIE, ROLE, Caller, same_origin
from shiftboss.extensions.admin.api.common import In, Limit, Name, Out, PathName, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.access import Role

router = make_router("access")


class Me(Out):
    name: str
    role: Role


class Token(Out):
    id: UUID
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewToken(In):
    name: Name = Field(examples=["ci"])
    role: Role = Field(examples=["viewer"])
    days: Annotated[float, Field(gt=0, le=36_500)] | None = Field(
        default=None, description="null: the token does not expire"
    )


class MadeToken(Out):
    token: str = Field(description="not shown again")
    name: str
    role: Role


class Login(In):
    token: Name


class Act(Out):
    id: int
    at: datetime
    actor: str
    role: str
    action: str = Field(examples=["run.start"])
    target: str | None
    outcome: Literal["done", "refused", "failed"]
    details: dict[str, Any]


@router.get("/me")
async def me(who: Caller) -> Me:
    """Return the name and role of the caller."""
    return Me(name=who.name, role=who.role)


@router.get("/tokens")
async def tokens(admin: At, who: Caller) -> list[Token]:
    """List all tokens, without their secrets. Admins only."""
    who.require(Role.ADMIN)
    return [Token.model_validate(row) for row in await admin.db.tokens.list()]


@router.post("/tokens", status_code=201, responses=responses(409), openapi_extra=ADMINS_ONLY)
async def create(new: NewToken, admin: At, who: Caller) -> MadeToken:
    """Create a token. Admins only."""
    lifetime = timedelta(days=new.days) if new.days else None
    secret = await admin.commands.create_token(who, new.name, new.role, lifetime)
    return MadeToken(token=secret, name=new.name, role=new.role)


@router.delete("/tokens/{which}", status_code=204, responses=responses(404), openapi_extra=ADMINS_ONLY)
async def revoke(which: PathName, admin: At, who: Caller) -> None:
    """Revoke a token by ID or name. Admins only."""
    await admin.commands.revoke_token(who, which)


@router.post("/session", status_code=204)
async def log_in(login: Login, request: Request, response: Response, admin: At) -> None:
    """Exchange a token for a session cookie."""
    same_origin(request)
    secret = await admin.access.log_in(login.token, admin.access.peer_of(request))
    response.set_cookie(
        COOKIE, secret, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )


@router.delete("/session", status_code=204, openapi_extra={ROLE: Role.VIEWER.value})
async def log_out(response: Response, admin: At, who: Caller) -> None:
    """End the session."""
    await admin.access.log_out(who)
    response.delete_cookie(COOKIE)


@router.get("/audit")
async def audit(
    admin: At,
    who: Caller,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="only entries with a smaller ID")] = None,
    limit: Limit = 100,
) -> list[Act]:
    """List the audit log, newest first. Admins only."""
    who.require(Role.ADMIN)
    return [Act.model_validate(row) for row in await admin.audit(limit, before)]
