"""Every route and every action of every page, with every kind of credential that must not let anybody in.

What there is comes from the running application, so that a new route or action is covered when it is added.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import httpx
import pytest
from admin_helpers import served
from fastapi.routing import APIRoute
from starlette.routing import Route

from shiftboss.db import Database
from shiftboss.extensions.admin.access import COOKIE, ROLE
from shiftboss.extensions.admin.page.mount import built_in
from shiftboss.extensions.admin.service import create_app
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.model.access import Principal, Role
from shiftboss.model.settings import Settings

SAFE = ("GET", "HEAD", "OPTIONS")
#: What anybody may call, and why.
OPEN = {
    "/login": "asks for a token itself",
    "/login/{code}": "a one-time link",
    "/logout": "ends the caller's own session",
    "/api/v1/admin/session": "asks for a token itself",
    "/hooks/{key}": "known by its signature",
    "/api/{path:path}": "there is nothing there",
    "/{path:path}": "there is nothing there",
    "/assets/{digest}/{name}": "style sheets and scripts",
    "/favicon.ico": "a picture",
    "/healthz": "probes of a load balancer",
    "/readyz": "probes of a load balancer",
    "/api/docs": "the manual",
    "/api/openapi.json": "the manual",
}
VALUES = {"id": "01890000-0000-7000-8000-000000000000", "vectorizer_id": "1", "path:path": "x", "digest": "x"}


class Call(NamedTuple):
    method: str
    path: str
    role: Role
    """The lowest one that may."""


class Credential(NamedTuple):
    name: str
    role: Role | None
    headers: dict[str, str]
    cookies: dict[str, str]


def _filled(path: str) -> str:
    number = "vectorizers" in path
    return re.sub(r"\{([^}]+)\}", lambda m: "1" if number else VALUES.get(m[1], "x"), path)


def _routes(routes: Any) -> Iterator[Route]:
    """All routes, those of included routers as well. A kind that this test cannot call fails it."""
    for route in routes:
        if (router := getattr(route, "original_router", None)) is not None:
            yield from _routes(router.routes)
        else:
            assert isinstance(route, Route), f"call {route!r} here too"
            yield route


def _calls(app: Any) -> Iterator[Call]:
    pages = {page.path: page for page in built_in()}
    for route in _routes(app.routes):
        if route.path in OPEN:
            continue
        extra = (route.openapi_extra or {}) if isinstance(route, APIRoute) else {}
        for method in sorted(route.methods or ()):
            page = pages.get(route.path)
            if page is not None:
                role = page.role if method in SAFE else page.acting
            else:
                role = Role(extra.get(ROLE, Role.VIEWER if method in SAFE else Role.OPERATOR))
            yield Call(method, _filled(route.path), role)


async def _bad(db: Database) -> list[Credential]:
    """Credentials that open nothing, and those that open less than some calls need."""
    found = [
        Credential("none", None, {}, {}),
        _token("wrong", None, "sb_wrong"),
        _session("wrong", None, "wrong"),
    ]
    for name, seconds in (("expired", -1), ("revoked", 3600)):
        secret = await db.tokens.create_token(name, Role.ADMIN, timedelta(seconds=seconds))
        found.append(_token(name, None, secret))
        who = await db.tokens.authenticate(secret) if seconds > 0 else None
        if who is not None:
            found.append(_session("revoked", None, await db.tokens.create_session(who, timedelta(hours=1))))
            await db.tokens.revoke_token(name)
    expired = await db.tokens.create_session(Principal("ann", Role.ADMIN), timedelta(seconds=-1))
    found.append(_session("expired", None, expired))
    for role in (Role.WORKER, Role.VIEWER, Role.OPERATOR):
        secret = await db.tokens.create_token(role.value, role)
        found.append(_token(role.value, role, secret))
        who = await db.tokens.authenticate(secret)
        assert who is not None
        found.append(_session(role.value, role, await db.tokens.create_session(who, timedelta(hours=1))))
    return found


def _token(name: str, role: Role | None, secret: str) -> Credential:
    return Credential(f"{name} token", role, {"Authorization": f"Bearer {secret}"}, {})


def _session(name: str, role: Role | None, secret: str) -> Credential:
    return Credential(f"{name} session", role, {}, {COOKIE: secret})


def _opens(credential: Credential, call: Call) -> bool:
    return credential.role is not None and Principal("x", credential.role).may(call.role)


@pytest.fixture
async def client(db: Database, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    lenient = settings.model_copy(update={"admin": AdminSettings(failures_per_minute=1_000_000)})
    async with served(db, lenient) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:
        yield client


async def _print(db: Database) -> dict[str, Any]:
    """What all tables hold, but for who called when."""
    tables = await db.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
        " WHERE schemaname IN ('public', 'shiftboss', 'ai') AND tablename NOT IN ('audit', 'access_tokens', 'leases')"
    )
    query = "SELECT md5(coalesce(string_agg(t::text, '' ORDER BY t::text), '')) AS digest FROM {} t"
    return {row["name"]: (await db.fetch(query.format(row["name"])))[0]["digest"] for row in tables}


def test_what_is_open_exists(db: Database, settings: Settings) -> None:
    assert set(OPEN) == {route.path for route in _routes(create_app(db, settings).routes)} & set(OPEN)


async def test_nobody_is_let_in_by_a_route(
    db: Database, client: httpx.AsyncClient, settings: Settings
) -> None:
    calls = list(_calls(create_app(db, settings)))
    assert len(calls) > 90
    credentials = await _bad(db)
    before, tried = await _print(db), 0
    for credential in credentials:
        for call in calls:
            if _opens(credential, call):
                continue
            answer = await _send(client, credential, call)
            refused = answer.status_code in (401, 403) or answer.headers.get("location", "").startswith(
                "/login"
            )
            assert refused, (credential.name, call, answer.status_code, answer.text[:200])
            tried += 1
    assert tried > 900
    assert await _print(db) == before
    done = await db.fetch("SELECT * FROM shiftboss.audit WHERE outcome = 'done'")
    assert done == []


async def _send(
    client: httpx.AsyncClient, credential: Credential, call: Call, body: str = ""
) -> httpx.Response:
    client.cookies = httpx.Cookies(credential.cookies)
    headers = credential.headers | {"Content-Type": "application/x-www-form-urlencoded"}
    return await client.request(call.method, call.path, headers=headers, content=body)


async def test_nobody_acts_on_a_page_without_the_role(db: Database, client: httpx.AsyncClient) -> None:
    credentials = [one for one in await _bad(db) if not one.headers]
    before, tried = await _print(db), 0
    for page in built_in():
        call = Call("POST", _filled(page.path), page.acting)
        for credential in credentials:
            if _opens(credential, call):
                continue
            for act in page.acts:
                answer = await _send(client, credential, call, f"act={act}+x&id=x&name=x&count=1")
                where = answer.headers.get("location", "")
                assert answer.status_code == 403 or where.startswith("/login"), (credential.name, call, act)
                tried += 1
            for sheet in page.sheets:
                asked = Call("GET", f"{call.path}?ask={sheet}&arg=x", page.acting)
                answer = await _send(client, credential, asked)
                where = answer.headers.get("location", "")
                assert answer.status_code == 403 or where.startswith("/login"), (credential.name, asked)
                tried += 1
    assert tried > 200
    assert await _print(db) == before


async def test_a_page_of_another_site_acts_for_nobody(db: Database, client: httpx.AsyncClient) -> None:
    session = await db.tokens.create_session(Principal("ann", Role.ADMIN), timedelta(hours=1))
    ann = _session("ann", Role.ADMIN, session)
    await db.tokens.create_token("closes", Role.ADMIN)
    before = await _print(db)
    for page in built_in():
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            foreign = ann._replace(headers={"Origin": origin})
            for act in page.acts:
                answer = await _send(
                    client, foreign, Call("POST", _filled(page.path), page.acting), f"act={act}+x"
                )
                assert answer.status_code == 403, (page.path, act, origin)
    assert await _print(db) == before


async def test_every_page_forbids_foreign_code_and_frames(db: Database, client: httpx.AsyncClient) -> None:
    for path in [*(_filled(page.path) for page in built_in()), "/login", "/nowhere", "/api/docs"]:
        answer = await client.get(path, headers={"Accept": "text/html"})
        policy = answer.headers.get("content-security-policy", "")
        assert "default-src 'none'" in policy or "default-src 'self'" in policy, path
        assert "frame-ancestors 'none'" in policy, path
        assert "unsafe" not in policy, path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["x-frame-options"] == "DENY", path
