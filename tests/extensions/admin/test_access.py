"""Access: roles, revocation, rate limit, sessions, origins, the bind address, and the audit log."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
from admin_helpers import served

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.db.roles import Kind, grants
from shiftboss.extensions.admin import access
from shiftboss.extensions.admin.access import COOKIE, MOST_ADDRESSES, Access, Peer, Throttle
from shiftboss.extensions.admin.page.mount import built_in
from shiftboss.extensions.admin.problems import TooManyFailures
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.model.access import Role
from shiftboss.model.errors import ConfigError
from shiftboss.model.settings import Settings

V1 = "/api/v1/admin"
HTML = {"Accept": "text/html"}
JSON = {"Accept": "application/json"}


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


#: Logging in asks for a token itself, and a webhook is known by its signature.
OPEN = ("/session", "/hooks/{key}")


async def changing(client: httpx.AsyncClient) -> list[tuple[str, str]]:
    """Return the method and path of every route that changes something."""
    document = (await client.get("/api/openapi.json")).json()
    calls = [
        (method, path)
        for path, methods in document["paths"].items()
        for method in methods
        if method in ("post", "put", "delete", "patch") and not path.endswith(OPEN)
    ]
    assert len(calls) >= 20
    return calls


async def test_every_changing_route_refuses_a_viewer(as_role, url: str) -> None:  # type: ignore[no-untyped-def]
    viewer = await as_role("viewer")
    bodies = {
        "/workers/run": {"bot": "verify"},
        "/tasks": {"task_type": "t"},
        "/events": {"key": "k"},
        "/schedules/{name}": {"cron": "0 3 * * *", "task_type": "t"},
        "/tokens": {"name": "n", "role": "viewer"},
        "/vectorizers": {"source": "t"},
    }
    for method, path in await changing(viewer):
        id = "1" if "vectorizers" in path else "01890000-0000-7000-8000-000000000000"
        where = path.replace("{id}", id)
        body = next((b for end, b in bodies.items() if path.endswith(end)), {})
        for name in ("name", "component", "which", "provider", "schedule"):
            where = where.replace("{" + name + "}", "x")
        answer = await viewer.request(method, where, json=body)
        assert answer.status_code == 403, (method, path, answer.text)


async def test_wrong_tokens_are_slowed_down_and_right_ones_never(db: Database, settings: Settings) -> None:
    token = await db.tokens.create_token("ann", Role.VIEWER)
    strict = settings.model_copy(update={"admin": AdminSettings(failures_per_minute=3)})
    async with served(db, strict) as url, httpx.AsyncClient(base_url=url) as client:

        async def call(secret: str, path: str = f"{V1}/me", **headers: str) -> httpx.Response:
            return await client.get(path, headers={"Authorization": f"Bearer {secret}", **headers})

        assert [(await call("sb_wrong")).status_code for _ in range(3)] == [401] * 3
        blocked = await call("sb_wrong")
        assert blocked.status_code == 429
        assert 0 < int(blocked.headers["retry-after"]) <= 3600
        assert (await call(token)).status_code == 200
        assert (await client.post("/login", data={"token": token})).status_code == 303
        code = await db.tokens.create_login("up", Role.ADMIN, timedelta(minutes=1))
        assert (await client.post(f"/login/{code}")).status_code == 303


async def test_every_page_says_so_while_a_client_is_throttled(
    db: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WINDOW", 3600.0)  # longer than this test takes on a busy machine
    token = await db.tokens.create_token("ann", Role.ADMIN)
    strict = settings.model_copy(update={"admin": AdminSettings(failures_per_minute=1)})
    paths = ["/?span=1d", *(_filled(page.path) for page in built_in())]
    async with served(db, strict) as url, httpx.AsyncClient(base_url=url, timeout=20) as client:

        def told(answer: httpx.Response) -> bool:
            return answer.status_code == 429 and 0 < int(answer.headers["retry-after"]) <= 3600

        assert (await client.post("/login", data={"token": "sb_wrong"})).status_code == 401
        again = await client.post("/login", data={"token": "sb_wrong"})
        assert told(again)
        assert "Too many wrong tokens from this address. Wait" in again.text
        assert told(await client.post("/login/sb_wrong"))
        assert (await client.get("/login")).status_code == 200, "anybody may open the form"

        client.cookies[COOKIE] = "gone"
        for path in paths:
            shown = await client.get(path, headers=HTML)
            assert told(shown), path
            assert "Too many wrong tokens from this address. Wait" in shown.text, path
            there = "/login" if path == "/" else f"/login?{urlencode({'next': path})}"
            assert f'action="{there}"' in shown.text, "a valid token leads to the page"
            assert told(await client.get(path, headers={"Accept": "text/event-stream"})), path
            acted = await client.post(path, headers=JSON)
            assert (told(acted), acted.json()["bad"]) == (True, True), path

        logged_in = await client.post("/login?next=%2Fqueues", data={"token": token})
        assert (logged_in.status_code, logged_in.headers["location"]) == (303, "/queues")
        for path in paths:
            assert (await client.get(path, headers=HTML)).status_code in (200, 404), path
        async with client.stream("GET", "/", headers={"Accept": "text/event-stream"}) as open_page:
            assert (await anext(open_page.aiter_raw())).startswith(b"retry")
        stranger = {"Authorization": "Bearer sb_wrong"}
        assert told(await client.get("/", headers={**HTML, **stranger})), "the address is still throttled"


def _filled(path: str) -> str:
    """Replace the parameters of a path by an ID that does not exist."""
    return re.sub(r"\{[^}]*\}", "01890000-0000-7000-8000-000000000000", path)


async def test_failures_count_per_address_told_by_trusted_proxies(db: Database, settings: Settings) -> None:
    await db.tokens.create_token("ann", Role.VIEWER)

    async def statuses(url: str, addresses: list[str]) -> list[int]:
        async with httpx.AsyncClient(base_url=url) as client:
            wrong = {"Authorization": "Bearer sb_wrong"}
            return [
                (await client.get(f"{V1}/me", headers={**wrong, "X-Forwarded-For": a})).status_code
                for a in addresses
            ]

    behind = AdminSettings.model_validate(
        {"failures_per_minute": 1, "trusted_proxies": ["127.0.0.0/8", "10.0.0.1"]}
    )
    async with served(db, settings.model_copy(update={"admin": behind})) as url:
        given = ["192.0.2.1", "192.0.2.2", "192.0.2.3, 10.0.0.1", "192.0.2.3", "192.0.2.9, 192.0.2.1", "x"]
        assert await statuses(url, given) == [401, 401, 401, 429, 429, 401]
    alone = AdminSettings(failures_per_minute=1)
    async with served(db, settings.model_copy(update={"admin": alone})) as url:
        assert await statuses(url, ["192.0.2.1", "192.0.2.2"]) == [401, 429], "a header of a stranger"


async def test_access_never_opens_again(db: Database, api: httpx.AsyncClient) -> None:
    assert (await api.get(f"{V1}/me")).status_code == 200
    await db.tokens.create_token("w", Role.WORKER)
    assert (await api.get(f"{V1}/me")).status_code == 200
    await db.tokens.create_token("short", Role.ADMIN, timedelta(milliseconds=1))
    await db.tokens.create_token("ann", Role.ADMIN)
    await db.tokens.revoke_token("ann")
    assert (await api.get(f"{V1}/me")).status_code == 401
    await db.execute("DELETE FROM shiftboss.access_tokens")
    assert (await api.get(f"{V1}/me")).status_code == 401


#: Not JSON, no object, an unknown field, nothing, and a field of the wrong type.
INVALID = (b"{", b"[]", b'{"zzz": 1}', b"", b'{"name": 7, "task_type": 7, "bot": 7, "key": 7, "source": 7}')


async def test_a_viewer_learns_nothing_about_bodies(as_role, api: httpx.AsyncClient) -> None:  # type: ignore[no-untyped-def]
    viewer, kind = await as_role("viewer"), {"Content-Type": "application/json"}
    for method, path in await changing(viewer):
        for where in (_filled(path), path.replace("{", "%00").replace("}", "")):
            if path.endswith("/session"):  # a viewer may log out
                continue
            for body in INVALID:
                refused = await viewer.request(method, where, content=body, headers=kind)
                assert refused.status_code == 403, (method, where, body, refused.text)
                unknown = await api.request(method, where, content=body, headers=kind)
                assert unknown.status_code == 401, (method, where, body, unknown.text)
    operator = await as_role("operator")
    for path, expected in (("/workers/run", 422), ("/tasks", 422), ("/tokens", 403)):
        answer = await operator.post(f"{V1}{path}", content=b"{", headers=kind)
        assert answer.status_code == expected, path


async def test_a_viewer_learns_nothing_about_forms(as_role) -> None:  # type: ignore[no-untyped-def]
    viewer = await as_role("viewer")
    acting = [(page, act) for page in built_in() for act in page.acts]
    assert len(acting) >= 40
    for page, act in acting:
        for form in ({"act": act}, {"act": f"{act} x", "name": "", "count": "x", "params": "{"}):
            for kind, expected in (("text/html", 403), ("application/json", 403)):
                answer = await viewer.post(_filled(page.path), data=form, headers={"Accept": kind})
                assert answer.status_code == expected, (page.path, act, answer.text[-300:])


async def test_a_link_is_used_by_its_button_only(db: Database, url: str) -> None:
    code = await db.tokens.create_login("up", Role.ADMIN, timedelta(minutes=1))
    async with httpx.AsyncClient(base_url=url) as browser:
        for _ in range(2):
            preview = await browser.get(f"/login/{code}")
            assert (preview.status_code, f'action="/login/{code}"' in preview.text) == (200, True)
            await browser.head(f"/login/{code}")
            assert COOKIE not in browser.cookies
        assert (await browser.post(f"/login/{code}", headers={"Origin": "null"})).status_code == 403
        used = await browser.post(f"/login/{code}", headers={"Origin": url})
        assert (used.status_code, COOKIE in browser.cookies) == (303, True)
        assert (await browser.post(f"/login/{code}")).status_code == 401


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "file://"])
async def test_nobody_is_logged_in_by_another_site(db: Database, url: str, origin: str) -> None:
    token = await db.tokens.create_token("ann", Role.OPERATOR)
    async with httpx.AsyncClient(base_url=url, headers={"Origin": origin}) as browser:
        assert (await browser.post("/login", data={"token": token})).status_code == 403
        assert (await browser.post(f"{V1}/session", json={"token": token})).status_code == 403
        assert COOKIE not in browser.cookies


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
    session = await access.redeem(code, Peer("127.0.0.1"))
    async with httpx.AsyncClient(base_url=url, cookies={COOKIE: session}) as browser:
        assert (await browser.get(f"{V1}/me")).json() == {"name": "up", "role": "admin"}


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


async def test_a_database_role_that_cannot_authenticate_is_refused_at_the_start(
    database_url: str, login: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    role = urlsplit(login).username or ""
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", login)
    await grants(database_url, Kind.WORKER, role, apply=True)
    assert await asyncio.to_thread(main, ["admin", "--port", "0"]) == 1
    said = capsys.readouterr()
    assert said.out == "", "it does not serve"
    assert f"role '{role}' may not read access tokens" in said.err
    assert f"shiftboss db roles operator {role} --apply" in said.err
    await grants(database_url, Kind.OPERATOR, role, apply=True)
    async with await Database.open(login) as db:
        await Access(db, AdminSettings()).check_role()


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
        form = await client.post("/tasks?text=123", data={"act": "cancel-all"}, headers=JSON)
        assert form.status_code == 403


def test_wrong_tokens_of_many_addresses_are_not_all_remembered() -> None:
    throttle = Throttle(1)
    for n in range(MOST_ADDRESSES + 10):
        throttle.failed(str(n))
    assert len(throttle._failures) == MOST_ADDRESSES
    with pytest.raises(TooManyFailures):
        throttle.failed(str(MOST_ADDRESSES))
