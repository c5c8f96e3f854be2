"""Who is calling: by bearer token, by session cookie or, on loopback before any token, the machine's user."""

from __future__ import annotations

import ipaddress
import time
from collections import defaultdict, deque
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from shiftboss.admin.problems import TooManyFailures, Unauthorized
from shiftboss.model.access import Forbidden, Principal, Role
from shiftboss.model.errors import ConfigError
from shiftboss.model.settings import AdminSettings

if TYPE_CHECKING:
    from shiftboss.db import Database

COOKIE = "shiftboss_session"
LOCAL = Principal("local", Role.ADMIN)
WINDOW = 60.0
MOST_ADDRESSES = 10_000
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

_bearer = HTTPBearer(auto_error=False, description="made with `shiftboss token create`")


class Throttle:
    """Wrong tokens per address: over `limit` in a minute, that address waits."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._failures: dict[str, deque[float]] = defaultdict(deque)

    def check(self, address: str) -> None:
        failures = self._failures.get(address)
        if failures is None:
            return
        now = time.monotonic()
        while failures and failures[0] <= now - WINDOW:
            failures.popleft()
        if not failures:
            del self._failures[address]
        elif len(failures) >= self._limit:
            raise TooManyFailures(failures[0] + WINDOW - now)

    def failed(self, address: str) -> None:
        if len(self._failures) >= MOST_ADDRESSES:  # who has many gets no room for all of them
            del self._failures[next(iter(self._failures))]
        self._failures[address].append(time.monotonic())


class Access:
    """Recognises callers; shared by the API and the page."""

    def __init__(self, db: Database, settings: AdminSettings) -> None:
        self._db = db
        self._settings = settings
        self._throttle = Throttle(settings.failures_per_minute)

    async def recognise(self, secret: str | None, address: str, host: str | None) -> Principal:
        """Who this is. Raises Unauthorized, TooManyFailures or Forbidden."""
        if secret:
            return await self._known(secret, address)
        if self._settings.auth == "required" or await self._db.tokens.has_tokens():
            raise Unauthorized("a token is needed", hint="make one with `shiftboss token create`")
        if not (is_loopback(address) and is_loopback(_name(host))):
            # a page of another site that had its name point to this machine comes with that name
            raise Forbidden("without tokens only this machine is served, under its own name")
        return LOCAL

    async def _known(self, secret: str, address: str) -> Principal:
        self._throttle.check(address)
        who = await self._db.tokens.authenticate(secret)
        if who is None:
            self._throttle.failed(address)
            raise Unauthorized("this token is not known, was revoked or is past its time")
        return who

    async def log_in(self, secret: str, address: str) -> str:
        """A session for the owner of a token; the cookie's value."""
        who = await self._known(secret, address)
        who.require(Role.VIEWER)
        return await self._session(who)

    async def redeem(self, code: str, address: str) -> str:
        """A session for a one-time login link; the cookie's value."""
        self._throttle.check(address)
        who = await self._db.tokens.redeem_login(code)
        if who is None:
            self._throttle.failed(address)
            raise Unauthorized("this login link was used or is past its time", hint="make a new one")
        return await self._session(who)

    async def _session(self, who: Principal) -> str:
        return await self._db.tokens.create_session(who, timedelta(hours=self._settings.session_hours))

    async def log_out(self, who: Principal) -> None:
        if who.kind == "session" and who.id is not None:
            await self._db.tokens.revoke_token(str(who.id))

    async def check_bind(self, host: str) -> None:
        """Refuse to serve other machines while everybody would be let in."""
        if is_loopback(host) or self._settings.auth == "required" or await self._db.tokens.has_tokens():
            return
        raise ConfigError(
            f"{host} can be reached from other machines, and there is no token yet",
            hint="make one with `shiftboss token create --role admin`, or serve 127.0.0.1",
        )


def is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _name(host: str | None) -> str | None:
    return urlsplit(f"//{host}").hostname if host else None


def address_of(request: Request) -> str:
    """Where a call comes from; nothing for one that a proxy hands on, which is not of this machine."""
    handed_on = any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-real-ip"))
    return "" if handed_on or request.client is None else request.client.host


async def caller(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
) -> Principal:
    """The dependency of every route that is not open to all: at least a viewer."""
    access: Access = request.app.state.access
    secret = credentials.credentials if credentials else request.cookies.get(COOKIE)
    who = await access.recognise(secret, address_of(request), request.headers.get("host"))
    if credentials is None and request.method not in SAFE:
        _same_origin(request)
    who.require(Role.VIEWER)
    return who


def _same_origin(request: Request) -> None:
    """A browser sends cookies along for any site; the origin tells which one asked."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden(f"calls from {origin} are not allowed", hint="use a bearer token")


Caller = Annotated[Principal, Depends(caller)]
