"""Texts from outside stay texts: no page makes markup of a worker's name, an error, a place or a prompt."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path

import httpx
import orjson
import pytest
from outside import Seeded, evil, mark, quoted, seed

import shiftboss.extensions
from shiftboss.db import Database
from shiftboss.extensions.admin.page.answers import TOLD
from shiftboss.extensions.admin.page.assets import asset
from shiftboss.extensions.admin.page.mount import built_in

HTML = {"Accept": "text/html"}
NOBODY = "01890000-0000-7000-8000-000000000000"
Clients = Callable[[str], Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def seeded(db: Database) -> Seeded:
    return await seed(db)


def pages(seeded: Seeded) -> dict[str, tuple[str, ...]]:
    """Return the address of each page and dialog, with the texts that it must show."""
    ran, asking, vectorizer = f"/tasks/{seeded['ran']}", f"/tasks/{seeded['asking']}", seeded["vectorizer"]
    return {
        "/": ("alert", "advice", "queue", "rule", "active bot", "doing", "provider"),
        "/tasks": ("type", "queue", "error", "group", "place", "message"),
        f"/tasks?queue={quoted('queue')}&text={quoted('params')}": ("queue", "params"),
        f"/tasks?task_type={quoted('type')}": ("type",),
        "/tasks?ask=new": ("type",),
        f"/tasks?ask=new&arg={quoted('type')}": ("type", "field", "about", "default", "choice"),
        ran: (
            "type", "queue", "worker", "params", "step", "result", "part", "log", "log step", "attempt", "traceback",
            "prompt", "answer", "template", "model", "error", "progress", "end", "event", "detail", "answerer", "question",
        ),
        asking: ("question", "field", "about", "default", "choice"),
        f"/tasks/{seeded['held']}": ("pause", "params"),
        f"{ran}?ask=again": ("params", "queue", "field"),
        "/approvals": ("question", "field", "about", "choice", "type"),
        "/workers": ("worker", "slot", "host", "slot host", "version"),
        "/workers?ask=scale": (),
        f"/workers/{quoted('worker')}": ("worker", "capability", "detail", "event", "host", "version", "region", "queue"),
        f"/slots/{quoted('slot')}": ("slot", "slot error", "slot host", "queue", "event"),
        "/queues": ("queue", "type", "pause", "tenant"),
        f"/queues?ask=limit&arg=queue+{quoted('queue')}": ("queue",),
        f"/queues?ask=pause&arg=queue+{quoted('queue')}": ("queue",),
        f"/queues?ask=weight&arg={quoted('tenant')}": ("tenant",),
        "/queues?ask=weight": ("tenant",),
        "/schedules": ("schedule", "type", "queue", "tenant"),
        f"/schedules?ask=edit&arg={quoted('schedule')}": ("schedule", "type", "queue", "tenant", "params", "need"),
        "/events": ("event", "detail", "worker", "slot", "key"),
        f"/events?kind={quoted('event')}": ("event",),
        "/access": ("token", "actor", "queue", "pause"),
        "/runs": ("city", "category", "run error", "bot", "active bot", "actor", "doing"),
        f"/runs/{seeded['run']}": ("city", "category", "run error", "bot", "actor", "counter", "params", "key"),
        "/providers": ("provider", "model"),
        "/ai/calls": ("model", "error", "provider", "type", "tenant"),
        f"/ai/calls?tenant={quoted('tenant')}": ("tenant", "model"),
        f"/ai/calls/{seeded['call']}": (
            "prompt", "answer", "role", "tool", "provider", "model", "tenant", "ai key", "template", "revision",
            "finish", "error",
        ),
        "/ai/limits": ("tenant",),
        f"/ai/limits?ask=set&arg=tenant+{quoted('tenant')}": ("tenant",),
        "/journal": ("writer",),
        f"/journal?user={quoted('writer')}": (
            "writer", "insight", "title", "emotion", "theme", "the person", "the place", "the concept",
        ),
        f"/journal?q={quoted('text')}": ("text",),
        f"/journal?ask=analyse&arg={quoted('writer')}": ("writer",),
        "/journal?ask=import": ("writer",),
        f"/journal/{seeded['entry']}": ("text", "writer", "external", "finding"),
        "/vectorizers": ("vectorizer", "stage", "reason", "row"),
        f"/vectorizers?mode=text&q=img&in={quoted('vectorizer')}": ("vectorizer", "chunk", "column"),
        f"/vectorizers/{vectorizer}": ("vectorizer", "table", "column", "base", "variable", "defer", "stage", "reason"),
        f"/vectorizers/{vectorizer}?ask=update&arg={vectorizer}": ("vectorizer", "column", "base"),
        f"/vectorizers?ask=drop&arg={vectorizer}": ("vectorizer", "table"),
        "/vectorizers?ask=create": ("table",),
    }  # fmt: skip


# What a visitor typed, in messages that quote it.
QUOTING = (
    f"/nowhere/{quoted('typed')}", f"/tasks/{quoted('typed')}", f"/tasks?status={quoted('typed')}",
    f"/tasks?since={quoted('typed')}", f"/tasks?cursor={quoted('typed')}", f"/workers/{quoted('typed')}", f"/slots/{quoted('typed')}",
    f"/runs/{quoted('typed')}", f"/runs?status={quoted('typed')}", f"/journal?user={quoted('typed')}",
    f"/journal/{quoted('typed')}", f"/vectorizers/{quoted('typed')}", f"/ai/calls/{quoted('typed')}",
    f"/queues?ask={quoted('typed')}", f"/login?next=/{quoted('typed')}", f"/login/{quoted('typed')}",
    f"/?span={quoted('typed')}", f"/vectorizers?q=x&in={quoted('typed')}", f"/schedules?ask=edit&arg={quoted('typed')}",
)  # fmt: skip


class Elements(HTMLParser):
    """Collects what a text from outside must never become."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        ours = tag != "script" or given.get("src") == asset("page.js")
        links = [given.get(name) or "/" for name in ("href", "action", "src")]
        if tag in ("img", "iframe", "object", "style") or not ours:
            self.wrong.append(tag)
        self.wrong += [name for name in given if name.startswith("on") or name == "style"]
        self.wrong += [link for link in links if not re.match(r"/(?![/\\])|[?#]", link)]


def check(path: str, page: httpx.Response) -> None:
    assert "script-src 'self'" in page.headers["content-security-policy"], path
    assert Elements(page.text).wrong == [], path
    assert "<img" not in page.text, path


async def test_no_text_from_outside_becomes_markup(as_role: Clients, seeded: Seeded) -> None:
    admin, missing = await as_role("admin"), {}
    for path, shown in pages(seeded).items():
        page = await admin.get(path, headers=HTML)
        assert page.status_code == 200, (path, page.text[-500:])
        check(path, page)
        if names := [name for name in shown if mark(name) not in page.text]:
            missing[path] = names
    assert missing == {}


async def test_every_page_is_attacked(seeded: Seeded) -> None:
    attacked = {path.partition("?")[0] for path in pages(seeded)}
    for page in built_in():
        pattern = re.sub(r"\\\{[^}]*\\\}", ".+", re.escape(page.path))
        assert any(re.fullmatch(pattern, path) for path in attacked), page.path
        sheets = {path for path in pages(seeded) if re.fullmatch(pattern, path.partition("?")[0])}
        for name in page.sheets:
            assert any(f"ask={name}" in path for path in sheets) or (page.path, name) in UNNAMED, (
                page.path,
                name,
            )


#: Dialogs that show no text from outside.
UNNAMED = {("/access", "token"), ("/access", "login"), ("/queues", "age"), ("/vectorizers/{id}", "drop")}


async def test_no_text_that_a_visitor_typed_becomes_markup(as_role: Clients) -> None:
    admin = await as_role("admin")
    for path in QUOTING:
        page = await admin.get(path, headers=HTML)
        assert page.status_code < 500, (path, page.text[-500:])
        check(path, page)
    admin.cookies[TOLD] = quoted("typed")
    told = await admin.get("/events", headers=HTML)
    check("the result of the previous action", told)
    assert mark("typed") in told.text


async def test_a_live_page_gets_the_same_markup(as_role: Clients, seeded: Seeded) -> None:
    admin = await as_role("admin")
    for path, text in (("/", "alert"), ("/tasks", "error"), ("/runs", "doing")):
        async with admin.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
            async for line in stream.aiter_lines():
                if not line.startswith("data: ["):
                    continue
                _, _, piece = orjson.loads(line.removeprefix("data: "))
                assert Elements(piece).wrong == [], path
                if mark(text) in piece:
                    break


def test_no_template_marks_a_value_as_safe() -> None:
    templates = sorted(Path(shiftboss.extensions.__file__ or "").parent.rglob("templates/*.html"))
    assert len(templates) > 40
    for template in templates:
        text = template.read_text()
        # Only literals of the template itself may be marked.
        assert text.count("|safe") == len(re.findall(r"'[^'{}]*'\|safe", text)), template
        assert "autoescape" not in text, template
        assert not re.search(r"\s[\w-]+=\{\{", text), f"an attribute without quotes in {template}"
        assert not re.search(r"<(script|style)[^>]*>[^<]*\{\{", text), template


def test_the_attack_is_one() -> None:
    assert Elements(f'<p title="{evil("x")}"></p>').wrong != []
