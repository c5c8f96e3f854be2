"""Authenticates callers by bearer token or session cookie, or as the local user before any token exists."""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from datetime import timedelta
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from shiftboss.db import Database
from shiftboss.extensions.admin.problems import TooManyFailures, Unauthorized
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.lifecycle.ports import is_loopback
from shiftboss.model.access import Forbidden, Principal, Role
from shiftboss.model.errors import ConfigError, ShiftbossError

COOKIE = "shiftboss_session"
LOCAL = Principal("local", Role.ADMIN)
WINDOW = 60.0
MOST_ADDRESSES = 10_000
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
ROLE = "x-role"
"""The key in a route's `openapi_extra` for the required role, if it is not operator."""
ADMINS_ONLY = {ROLE: Role.ADMIN.value}

_ROLE = """
SELECT current_user AS name, has_table_privilege('shiftboss.access_tokens', 'SELECT')
    AND has_table_privilege('shiftboss.access_tokens', 'UPDATE') AS may
"""
_bearer = HTTPBearer(auto_error=False, description="a token created with `shiftboss token create`")


class Peer(NamedTuple):
    """The address of a caller. `direct` is False if a proxy forwarded the request."""

    address: str
    direct: bool = True

    @property
    def local(self) -> bool:
        return self.direct and is_loopback(self.address)


class Throttle:
    """Counts wrong credentials per address. After `limit` of them in a minute, the address must wait."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._failures: dict[str, deque[float]] = {}

    def failed(self, address: str) -> None:
        """Count a wrong credential. Raise TooManyFailures beyond the limit."""
        now = time.monotonic()
        failures = self._failures.pop(address, None) or deque(maxlen=self._limit)
        while failures and failures[0] <= now - WINDOW:
            failures.popleft()
        self._failures[address] = failures  # at the end, so that the oldest addresses are dropped first
        if len(self._failures) > MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        if len(failures) == self._limit:
            raise TooManyFailures(failures[0] + WINDOW - now)
        failures.append(now)


class Access:
    """Authenticates callers of the API and the dashboard."""

    def __init__(self, db: Database, settings: AdminSettings) -> None:
        self._db = db
        self._settings = settings
        self._throttle = Throttle(settings.failures_per_minute)

    def peer_of(self, request: Request) -> Peer:
        """Return the caller's address. X-Forwarded-For is used only as far as trusted proxies wrote it."""
        address = request.client.host if request.client else ""
        if not any(name in request.headers for name in FORWARDED):
            return Peer(address)
        hops = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        for hop in reversed([hop.strip() for hop in hops if hop.strip()]):
            if not self._trusted(address) or not _is_address(hop):
                break
            address = hop
        return Peer(address, direct=False)

    def _trusted(self, address: str) -> bool:
        return _is_address(address) and any(
            ipaddress.ip_address(address) in network for network in self._settings.trusted_proxies
        )

    async def identify(self, request: Request) -> Principal:
        """Return the caller, at least a viewer, or raise Unauthorized, TooManyFailures or Forbidden."""
        secret, peer = _bearer_token(request) or request.cookies.get(COOKIE), self.peer_of(request)
        who = await (self._known(secret, peer) if secret else self._local(peer, request.headers.get("host")))
        who.require(Role.VIEWER)
        return who

    async def still_allows(self, request: Request) -> bool:
        """Whether the token or session that opened a stream is still valid."""
        try:
            await self.identify(request)
        except ShiftbossError:
            return False
        return True

    async def _local(self, peer: Peer, host: str | None) -> Principal:
        if self._settings.auth == "required" or await self._db.tokens.has_tokens():
            raise Unauthorized("a token is required", hint="create one with `shiftboss token create`")
        if not (peer.local and is_loopback(_name(host))):
            # Checking the name protects against DNS rebinding by other web sites.
            raise Forbidden(
                "without tokens, only requests from this machine to localhost are allowed",
                hint="create a token with `shiftboss token create`",
            )
        return LOCAL

    async def _known(self, secret: str, peer: Peer) -> Principal:
        """Return the owner of a credential. Wrong ones from the same address do not block a valid one."""
        who = await self._db.tokens.authenticate(secret)
        if who is None:
            self._throttle.failed(peer.address)
            raise Unauthorized("the token is unknown, revoked or expired")
        return who

    async def log_in(self, secret: str, peer: Peer) -> str:
        """Create a session for the owner of a token and return the value of its cookie."""
        who = await self._known(secret, peer)
        who.require(Role.VIEWER)
        return await self._session(who)

    async def redeem(self, code: str, peer: Peer) -> str:
        """Create a session for a one-time login link and return the value of its cookie."""
        who = await self._db.tokens.redeem_login(code)
        if who is None:
            self._throttle.failed(peer.address)
            raise Unauthorized(
                "the login link was already used or has expired",
                hint="create a new one with `shiftboss token login`",
            )
        return await self._session(who)

    async def _session(self, who: Principal) -> str:
        return await self._db.tokens.create_session(who, timedelta(hours=self._settings.session_hours))

    async def log_out(self, who: Principal) -> None:
        if who.kind == "session" and who.id is not None:
            await self._db.tokens.revoke_token(str(who.id))

    async def check_role(self) -> None:
        """Raise Forbidden for a database role that cannot authenticate anybody."""
        role = await self._db.fetch_one(_ROLE)
        if role is not None and not role["may"]:
            raise Forbidden(
                f"role {role['name']!r} may not read access tokens, so every request would be refused",
                hint=f"let the owner of the schema run: shiftboss db roles operator {role['name']} --apply",
            )

    async def check_bind(self, host: str) -> None:
        """Raise ConfigError for an address that other machines can reach while there is no token."""
        if is_loopback(host) or self._settings.auth == "required" or await self._db.tokens.has_tokens():
            return
        raise ConfigError(
            f"{host} can be reached from other machines, but there is no token yet",
            hint="create one with `shiftboss token create NAME --role admin`, or use --host 127.0.0.1",
        )


def _name(host: str | None) -> str | None:
    return urlsplit(f"//{host}").hostname if host else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def caller(request: Request, scheme: Annotated[Any, Depends(_bearer)] = None) -> Principal:
    """Return the caller of a route. `scheme` only describes the token in the OpenAPI document."""
    access: Access = request.app.state.access
    who = await access.identify(request)
    if request.method not in SAFE and _bearer_token(request) is None:
        same_origin(request)
    return who


async def check_before_body(request: Request) -> None:
    """Check the caller's role before the request is validated, so that a refusal reveals nothing."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or all(d.call is not caller for d in route.dependant.dependencies):
        return
    who = await caller(request)
    if request.method not in SAFE:
        who.require(Role((route.openapi_extra or {}).get(ROLE, Role.OPERATOR)))


def same_origin(request: Request) -> None:
    """Raise Forbidden for a request from a page of another site, to which browsers add cookies, too."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden(f"requests from the origin {origin} are not allowed", hint="use a bearer token")


Caller = Annotated[Principal, Depends(caller)]
