"""The dashboard in a real browser with a real fleet."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from shiftboss.db import Database
from shiftboss.extensions.journal.parsing import parse
from shiftboss.model.access import Role
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from tests.extensions.page.conftest import Seen
from tests.extensions.page.stage import Stage
from tests.extensions.page.test_actions import force

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

PATHS = (
    "/", "/?span=5m", "/?span=30d", "/tasks", "/tasks?status=Failed", "/workers", "/runs?run=survey", "/queues", "/journal", "/vectorizers",
    "/schedules", "/providers", "/events", "/access", "/approvals", "/ai/calls", "/ai/limits",
)  # fmt: skip
Open = Callable[..., Page]


def watch(page: Page) -> Seen:
    seen = Seen()
    page.on("request", lambda request: seen.hosts.add(urlsplit(request.url).netloc))
    page.on("console", lambda line: seen.errors.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    return seen


def enqueue(stage: Stage, *tasks: NewTask) -> list[str]:
    return [str(made.id) for made in stage.ask(lambda db: db.tasks.enqueue(tasks))]


def test_the_api_keeps_its_own_answers(stage: Stage) -> None:
    missing = httpx.get(f"{stage.url}/api/v1/admin/nothing")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert httpx.post(f"{stage.url}/metrics").status_code == 405
    lost = httpx.get(f"{stage.url}/nowhere", headers={"Accept": "text/html"})
    assert lost.status_code == 404
    assert "Page not found" in lost.text


def test_a_run_started_on_the_page_moves_its_bar(open_as: Open) -> None:
    page = open_as("operator", "/runs?run=survey")
    page.get_by_label("Steps").fill("40")
    page.get_by_label("Category").select_option("bakery")
    page.get_by_role("button", name="Start run").click()
    bar = page.get_by_role("progressbar", name="Progress of survey")
    expect(bar).to_have_attribute("value", re.compile(r"^([1-9]|[1-4]\d)$"))
    before = int(bar.get_attribute("value") or 0)
    page.wait_for_function(
        "before => (document.querySelector('main progress')?.value ?? 100) > before + 10",
        arg=before,
    )
    history = page.locator("section", has=page.get_by_role("heading", name="History"))
    expect(history.get_by_role("row", name=re.compile("survey.*complete"))).to_be_visible()
    expect(history.get_by_text("seen 40")).to_be_visible()


def test_a_killed_worker_is_seen_to_crash_and_to_come_back(stage: Stage, open_as: Open) -> None:
    page = open_as("viewer", "/workers")
    slot = page.get_by_role("row", name=re.compile("worker:default:0"))
    expect(slot.get_by_text("healthy")).to_be_visible()
    rows = stage.ask(lambda db: db.health.slots())
    pid = next(row["pid"] for row in rows if row["component"].endswith("worker:default:0"))
    os.kill(pid, signal.SIGKILL)
    expect(slot.get_by_text(re.compile("crashed|starting"))).to_be_visible()
    expect(slot.get_by_text("healthy")).to_be_visible(timeout=40_000)
    expect(slot.get_by_role("cell").first).not_to_contain_text(str(pid))
    slot.get_by_role("link").first.click()
    expect(page.locator(".timeline").get_by_text(re.compile("crashed")).first).to_be_visible()


def test_a_dead_letter_is_retried(stage: Stage, open_as: Open) -> None:
    (id,) = enqueue(stage, NewTask(task_type="charge", params={"order": 1}, max_attempts=1))
    page = open_as("operator", f"/tasks/{id}")
    expect(page.get_by_text("failed", exact=True).first).to_be_visible()
    refused = page.locator(".story .error", has_text="the payment service refused order 1")
    expect(refused).to_have_count(1)
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("queued again")
    expect(refused).to_have_count(2)


def test_an_action_on_a_filter_asks_first_and_reaches_all_of_it(stage: Stage, open_as: Open) -> None:
    waiting = [NewTask(task_type="resize", queue="nobody", params={"image": n}) for n in range(3)]
    enqueue(stage, *waiting)
    page = open_as("operator", "/tasks?queue=nobody&status=Queued")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Cancel all unfinished").click()
    page.get_by_role("dialog").get_by_role("button", name="No").click()
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Cancel all unfinished").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel all unfinished").click()
    expect(page.get_by_text("No matching tasks")).to_be_visible()


def test_a_viewer_can_not_act_not_even_by_force(stage: Stage, open_as: Open) -> None:
    (id,) = enqueue(stage, NewTask(task_type="resize", queue="nowhere", params={"image": 1}))
    page = open_as("viewer", f"/tasks/{id}")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    force(page, "cancel-task", id)
    expect(page.get_by_role("status")).to_contain_text("needs operator")
    answer = page.request.post(f"/api/v1/admin/tasks/{id}/cancel")
    assert answer.status == 403
    task = stage.ask(lambda db: db.tasks.get(id))  # type: ignore[arg-type]
    assert task is not None
    assert task["status"] == "Queued"
    page.goto("/runs?run=survey")
    expect(page.get_by_role("button", name="Start run")).to_have_count(0)


def test_without_a_session_there_is_only_the_log_in(stage: Stage, open_as: Open, browser: Browser) -> None:
    secret = stage.ask(lambda db: db.tokens.create_token("somebody", Role.VIEWER))
    with browser.new_context(base_url=stage.url) as context:
        page = context.new_page()
        for path in ("/", "/tasks", "/journal"):
            page.goto(path)
            assert urlsplit(page.url).path == "/login", path
        page.goto("/tasks?status=Failed")
        page.get_by_label("Token").fill("sb_wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("unknown")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Tasks").first).to_be_visible()
        assert page.url == f"{stage.url}/tasks?status=Failed", "the page that was asked for"
        assert all(cookie["httpOnly"] for cookie in context.cookies())
        page.get_by_role("button", name="Log out").click()
        page.goto("/tasks")
        assert urlsplit(page.url).path == "/login"


def test_a_session_that_ended_can_not_act_on_an_open_page(stage: Stage, open_as: Open) -> None:
    page = open_as("operator", "/workers")
    stage.ask(
        lambda db: db.execute(
            "UPDATE shiftboss.access_tokens SET revoked_at = now() WHERE name = 'a operator'"
        )
    )
    page.get_by_role("button", name="Resume all").click()
    page.wait_for_url("**/login?next=%2Fworkers")


@pytest.mark.parametrize(
    "asked", ["//evil.example", "/\\evil.example", "https://evil.example", "/\tx", "/login?next=/tasks", ""]
)
def test_a_log_in_leads_nowhere_else(stage: Stage, asked: str) -> None:
    code = stage.ask(lambda db: db.tokens.create_login("a viewer", Role.VIEWER, timedelta(minutes=5)))
    answer = httpx.post(f"{stage.url}/login/{code}", params={"next": asked})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_lost_connection_is_shown_and_heals(open_as: Open) -> None:
    page = open_as("viewer")
    hide = (
        "yes => { Object.defineProperty(document, 'hidden', {value: yes, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')) }"
    )
    page.evaluate(hide, True)
    page.context.set_offline(True)
    page.evaluate(hide, False)
    expect(page.get_by_text(re.compile("Connection lost", re.I))).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text(re.compile("Connection lost", re.I))).not_to_be_visible()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


@pytest.mark.timeout(400)  # it opens every page in a browser
def test_every_page_loads_from_here_alone_without_an_error_and_serves_people_who_need_aids(
    stage: Stage, open_as: Open, axe: str
) -> None:
    page = open_as("admin")
    seen = watch(page)
    for path in (*PATHS, *details(stage)):
        page.goto(path)
        expect(page.locator("main h1")).to_be_visible()
        assert page.locator("main time").first.evaluate_all(
            "all => all.every(t => !/UTC/.test(t.textContent))"
        )
        assert "did not work" not in page.inner_text("main"), path
        page.evaluate(axe)
        page.emulate_media(color_scheme="light")
        assert serious(page) == [], path
        page.emulate_media(color_scheme="dark")  # changes colours and nothing else
        assert serious(page, "color-contrast") == [], f"{path}, dark"
    assert seen.hosts == {urlsplit(stage.url).netloc}
    assert seen.errors == []
    page.goto("/schedules")
    page.get_by_role("button", name="Add schedule").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.evaluate(axe)
    assert serious(page) == [], "a dialog"


def details(stage: Stage) -> list[str]:
    """The address of one task, worker, slot, run, vectorizer and journal entry each."""

    async def seed(db: Database) -> list[str]:
        await db.execute("CREATE TABLE IF NOT EXISTS pages (id serial PRIMARY KEY, body text)")
        made = await db.vectorizers.create("pages", columns=["body"], if_not_exists=True)
        raw = {"id": "a1", "user": "axel", "date": "2030-05-01", "text": "A walk by the river."}
        (entry,) = await db.journal.upsert_entries([parse(raw).row()])
        (task,) = await db.tasks.enqueue([NewTask(task_type="charge", params={"order": 5}, max_attempts=1)])
        await db.execute("UPDATE shiftboss.schedules SET last_tick = now(), last_task_id = %s", [task.id])
        run = await db.runs.start_run("survey", None, None, {"steps": 1, "pause": 0}, requested_by="ops")
        (worker, *_) = await db.insights.fleet.workers(status="active")
        (slot, *_) = await db.health.slots()
        return [f"/tasks/{task.id}", f"/workers/{worker['worker_id']}", f"/slots/{slot['component']}",
                f"/runs/{run.id}", f"/vectorizers/{made}", f"/journal/{entry['id']}"]  # fmt: skip

    return stage.ask(seed)


def serious(page: Page, *rules: str) -> list[tuple[str, str]]:
    """What axe finds by these rules; by all of them if none is named."""
    found = page.evaluate(
        "rules => axe.run(document, {resultTypes: ['violations'], ...(rules.length && {runOnly: rules})})"
        ".then(r => r.violations)",
        list(rules),
    )
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def test_it_works_at_phone_width_and_by_keyboard(open_as: Open) -> None:
    page = open_as("viewer", viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("navigation").get_by_role("link", name="Queues").click()
    expect(page.get_by_role("heading", name="Queues").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_first_view_is_small_and_quick(stage: Stage, open_as: Open) -> None:
    page = open_as("viewer")
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto("/")
    expect(page.locator(".tile").first).to_be_visible()
    page.wait_for_function("document.readyState === 'complete'")
    shown = page.evaluate(
        "performance.getEntriesByType('paint').find(p => p.name === 'first-contentful-paint').startTime"
    )
    print(f"first view: {sum(sizes) / 1000:.0f} kB, painted after {shown:.0f} ms")
    assert sum(sizes) <= 60_000
    assert shown < 1000 * max(1.0, os.getloadavg()[0]), "300 ms on a machine that has time"


def test_open_pages_are_cheap(stage: Stage) -> None:
    code = stage.ask(lambda db: db.tokens.create_login("many", Role.VIEWER, timedelta(minutes=5)))
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=stage.url, limits=limits, timeout=30) as client, ExitStack() as open_pages:
        client.post(f"/login/{code}")
        for _ in range(200):
            stream = client.stream("GET", "/", headers={"Accept": "text/event-stream"})
            answer = open_pages.enter_context(stream)
            assert next(answer.iter_raw()).startswith(b"retry")
        service = psutil.Process(stage.pid)
        used, began = sum(service.cpu_times()[:2]), time.monotonic()
        time.sleep(8)  # a measurement: idle seconds
        share = (sum(service.cpu_times()[:2]) - used) / (time.monotonic() - began)
    print(f"200 idle pages: {share:.1%} of a core")
    assert share < 0.05, f"{share:.0%} of a core"


def test_what_comes_from_outside_is_never_markup(stage: Stage, open_as: Open) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>\"'>"

    async def seed(db: Database) -> Any:
        (task,) = await db.tasks.enqueue([NewTask(task_type=evil, queue=evil, params={evil: evil})])
        await db.tasks.pause("queue", evil, evil)
        await db.workers.register(Member(id=f"w {evil}", queues=[evil]))
        await db.events.note(evil, worker_id=evil, details={evil: evil})
        await db.tokens.create_token(evil, Role.VIEWER)
        await db.execute(
            "UPDATE tasks SET error_message = %s, status = 'Failed' WHERE id = %s", [evil, task.id]
        )
        return task.id

    id = stage.ask(seed)
    page = open_as("admin")
    alerted: list[str] = []
    page.on("dialog", lambda dialog: (alerted.append(dialog.message), dialog.dismiss()))
    for path in ("/", "/tasks", f"/tasks/{id}", "/workers", f"/workers/w {quote(evil)}", "/queues", "/events",
                 f"/tasks?queue={quote(evil)}", f"/runs?bot={quote(evil)}", f"/journal?q={quote(evil)}",
                 "/access", f"/queues?ask=limit&arg=queue+{quote(evil)}"):  # fmt: skip
        answer = page.goto(path)
        assert answer is not None
        assert answer.status in (200, 404), path
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert page.locator("main img, main script, #sheet img").count() == 0, path
    assert alerted == []
    stage.ask(lambda db: db.tasks.resume("queue", evil))


def test_the_description_of_the_api_needs_nobody_else(stage: Stage, open_as: Open) -> None:
    page = open_as("viewer")
    seen = watch(page)
    page.goto("/api/docs")
    expect(page.get_by_text("/api/v1/admin/workers/run", exact=True)).to_be_visible()
    assert seen.hosts == {urlsplit(stage.url).netloc}
    assert seen.errors == []
