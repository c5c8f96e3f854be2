"""Who gets in: roles, revocation, rate limit, sessions, origins, the bind; and what the audit log keeps."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest
from admin_helpers import served

from shiftboss.admin.access import COOKIE, MOST_ADDRESSES, Access, Throttle
from shiftboss.admin.problems import TooManyFailures
from shiftboss.db import Database
from shiftboss.model.access import Role
from shiftboss.model.errors import ConfigError
from shiftboss.model.settings import AdminSettings, Settings

V1 = "/api/v1/admin"


async def test_roles(as_role, api: httpx.AsyncClient, db: Database) -> None:  # type: ignore[no-untyped-def]
    assert (await api.get(f"{V1}/me")).json() == {"name": "local", "role": "admin"}, "no token yet: open"
    viewer, operator, admin = [await as_role(role) for role in ("viewer", "operator", "admin")]
    worker = await as_role("worker")
    closed = await api.get(f"{V1}/me")
    assert (closed.status_code, closed.headers["www-authenticate"]) == (401, "Bearer")
    assert closed.headers["content-type"] == "application/problem+json"
    assert (await worker.get(f"{V1}/overview")).status_code == 403
    assert (await viewer.get(f"{V1}/overview")).status_code == 200
    body = {"bot": "verify"}
    refused = await viewer.post(f"{V1}/workers/run", json=body)
    assert (refused.status_code, "needs operator" in refused.json()["detail"]) == (403, True)
    assert (await operator.post(f"{V1}/workers/run", json=body)).status_code == 201
    assert (await operator.get(f"{V1}/audit")).status_code == 403
    assert (await operator.post(f"{V1}/tokens", json={"name": "x", "role": "admin"})).status_code == 403
    made = await admin.post(f"{V1}/tokens", json={"name": "x", "role": "viewer"})
    assert made.status_code == 201
    assert (await admin.delete(f"{V1}/tokens/x")).status_code == 204
    gone = await api.get(f"{V1}/me", headers={"Authorization": f"Bearer {made.json()['token']}"})
    assert gone.status_code == 401

    log = [
        (a["actor"], a["action"], a["target"], a["outcome"]) for a in (await admin.get(f"{V1}/audit")).json()
    ]
    assert log == [
        ("admin-2", "token.revoke", "x", "done"),
        ("admin-2", "token.create", "x", "done"),
        ("operator-1", "token.create", "x", "refused"),
        ("operator-1", "run.start", "verify", "done"),
        ("viewer-0", "run.start", "verify", "refused"),
    ]


async def test_every_changing_route_refuses_a_viewer(as_role, url: str) -> None:  # type: ignore[no-untyped-def]
    viewer = await as_role("viewer")
    document = (await viewer.get("/api/openapi.json")).json()
    calls = [
        (method, path)
        for path, methods in document["paths"].items()
        for method in methods
        if method in ("post", "put", "delete", "patch") and not path.endswith("/session")
    ]
    assert len(calls) >= 20
    bodies = {
        "/workers/run": {"bot": "verify"},
        "/tasks": {"task_type": "t"},
        "/schedules/{name}": {"cron": "0 3 * * *", "task_type": "t"},
        "/tokens": {"name": "n", "role": "viewer"},
        "/vectorizers": {"source": "t"},
    }
    for method, path in calls:
        id = "1" if "vectorizers" in path else "01890000-0000-7000-8000-000000000000"
        where = path.replace("{id}", id)
        body = next((b for end, b in bodies.items() if path.endswith(end)), {})
        for name in ("name", "component", "which", "provider", "schedule"):
            where = where.replace("{" + name + "}", "x")
        answer = await viewer.request(method, where, json=body)
        assert answer.status_code == 403, (method, path, answer.text)


async def test_wrong_tokens_are_slowed_down(db: Database, settings: Settings) -> None:
    token = await db.tokens.create_token("ann", Role.VIEWER)
    strict = settings.model_copy(update={"admin": AdminSettings(failures_per_minute=3)})
    async with served(db, strict) as url, httpx.AsyncClient(base_url=url) as client:
        for _ in range(3):
            wrong = await client.get(f"{V1}/me", headers={"Authorization": "Bearer sb_wrong"})
            assert wrong.status_code == 401
        blocked = await client.get(f"{V1}/me", headers={"Authorization": f"Bearer {token}"})
        assert blocked.status_code == 429
        assert 0 < int(blocked.headers["retry-after"]) <= 60


async def test_a_session_by_token_and_by_link(db: Database, url: str, settings: Settings) -> None:
    token = await db.tokens.create_token("ann", Role.OPERATOR)
    async with httpx.AsyncClient(base_url=url) as browser:
        assert (await browser.post(f"{V1}/session", json={"token": "sb_wrong"})).status_code == 401
        assert (await browser.post(f"{V1}/session", json={"token": token})).status_code == 204
        assert (await browser.get(f"{V1}/me")).json()["name"] == "ann"
        foreign = await browser.post(
            f"{V1}/workers/run", json={"bot": "verify"}, headers={"Origin": "http://evil"}
        )
        assert foreign.status_code == 403
        own = await browser.post(f"{V1}/workers/run", json={"bot": "verify"}, headers={"Origin": url})
        assert own.status_code == 201
        kept = browser.cookies[COOKIE]
        assert (await browser.delete(f"{V1}/session")).status_code == 204
        assert (await browser.get(f"{V1}/me")).status_code == 401
        browser.cookies[COOKIE] = kept
        assert (await browser.get(f"{V1}/me")).status_code == 401, "also if it was copied"
    access = Access(db, settings.admin)
    code = await db.tokens.create_login("up", Role.ADMIN, timedelta(minutes=1))
    session = await access.redeem(code, "127.0.0.1")
    assert (await access.recognise(session, "127.0.0.1", None)).name == "up"
    async with httpx.AsyncClient(base_url=url, cookies={COOKIE: session}) as browser:
        assert (await browser.get(f"{V1}/me")).json()["role"] == "admin"


async def test_without_tokens_only_this_machine_under_its_own_name(
    api: httpx.AsyncClient, db: Database
) -> None:
    rebound = await api.get(f"{V1}/me", headers={"Host": "evil.example"})
    assert rebound.status_code == 403
    access = Access(db, AdminSettings())
    with pytest.raises(ConfigError, match="no token yet"):
        await access.check_bind("0.0.0.0")
    await access.check_bind("127.0.0.1")
    await access.check_bind("::1")
    await db.tokens.create_token("w", Role.WORKER)
    with pytest.raises(ConfigError):
        await access.check_bind("192.0.2.1")
    await db.tokens.create_token("a", Role.VIEWER)
    await access.check_bind("0.0.0.0")


async def test_who_comes_through_a_proxy_is_not_of_this_machine(api: httpx.AsyncClient) -> None:
    """The proxy is: without a token it would make an admin of everybody."""
    assert (await api.get(f"{V1}/me")).json()["role"] == "admin"
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert (await api.get(f"{V1}/me", headers={header: "192.0.2.1"})).status_code == 403


async def test_hidden_payloads_can_not_be_searched_nor_read_elsewhere(
    db: Database, database_url: str
) -> None:
    env = {"SHIFTBOSS_DATABASE_URL": database_url, "SHIFTBOSS_ADMIN_HIDE_PAYLOADS": "true"}
    async with served(db, Settings.load(env)) as url, httpx.AsyncClient(base_url=url, timeout=20) as client:
        body = {"cron": "0 3 * * *", "task_type": "t", "params": {"pin": 1234}}
        put = await client.put(f"{V1}/schedules/s", json=body)
        listed = await client.get(f"{V1}/schedules")
        assert (put.status_code, listed.status_code) == (200, 200)
        assert "1234" not in put.text + listed.text
        assert (await client.get(f"{V1}/tasks", params={"text": "123"})).status_code == 403
        assert (await client.post(f"{V1}/tasks/cancel", json={"text": "123"})).status_code == 403
        assert (await client.get(f"{V1}/tasks")).status_code == 200


def test_wrong_tokens_of_many_addresses_are_not_all_remembered() -> None:
    throttle = Throttle(1)
    for n in range(MOST_ADDRESSES + 10):
        throttle.failed(str(n))
    assert len(throttle._failures) == MOST_ADDRESSES
    with pytest.raises(TooManyFailures):
        throttle.check(str(MOST_ADDRESSES))
