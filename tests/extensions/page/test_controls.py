"""The smaller controls of the pages, each with its effect in the database."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import expect

from shiftboss.extensions.journal.parsing import parse
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from tests.extensions.page.stage import Stage
from tests.extensions.page.test_actions import Open, one, press, row, sure, told
from tests.extensions.page.test_page import PATHS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
Waiting = Callable[[str], list[UUID]]


@pytest.fixture
def waiting(stage: Stage) -> Waiting:
    """`waiting("shelf")`: three tasks in a queue that nobody serves."""

    def make(queue: str) -> list[UUID]:
        tasks = [NewTask(task_type="resize", queue=queue, params={"image": n}) for n in range(3)]
        return [made.id for made in stage.ask(lambda db: db.tasks.enqueue(tasks))]

    return make


def states(stage: Stage, queue: str) -> list[str]:
    sql = "SELECT coalesce(array_agg(status::text ORDER BY status), '{}') FROM tasks WHERE queue = %s"
    found: list[str] = one(stage, sql, queue)
    return found


def test_tasks_are_cancelled_and_retried_one_by_one_by_selection_and_all(
    stage: Stage, open_as: Open, waiting: Waiting
) -> None:
    first, *_ = waiting("shelf")
    page = open_as("operator", "/tasks?queue=shelf")
    line = page.locator(f"tr[data-key='{first}']")
    press(line, "Cancel")
    sure(page, "Cancel")
    told(page, "The task is cancelled")
    assert states(stage, "shelf") == ["Cancelled", "Queued", "Queued"]
    press(line, "Retry")
    told(page, "The task is queued again")
    assert states(stage, "shelf") == ["Queued"] * 3

    for place in (0, 1):
        page.get_by_role("checkbox").nth(place).check()
    press(page, "Cancel selected")
    sure(page, "Cancel selected")
    told(page, "2 tasks cancelled or stopping")
    assert states(stage, "shelf") == ["Cancelled", "Cancelled", "Queued"]
    press(page, "Cancel all unfinished")
    sure(page, "Cancel all unfinished")
    told(page, "1 task cancelled or stopping")
    assert states(stage, "shelf") == ["Cancelled"] * 3
    press(page, "Retry all failed")
    sure(page, "Retry all failed")
    told(page, "3 tasks queued again")
    assert states(stage, "shelf") == ["Queued"] * 3

    page.goto(f"/tasks/{first}")
    press(page, "Cancel")
    sure(page, "Cancel")
    told(page, "The task is cancelled")
    expect(page.locator(".facts .badge").first).to_have_text("cancelled")
    page.keyboard.press("r")
    told(page, "The task is queued again")
    assert states(stage, "shelf") == ["Queued"] * 3


def test_the_keyboard_walks_selects_retries_searches_and_helps(
    stage: Stage, open_as: Open, waiting: Waiting
) -> None:
    ids = waiting("keys")
    stage.ask(lambda db: db.tasks.cancel(ids, "a test"))
    page = open_as("operator", "/tasks?queue=keys")
    rows = page.locator("[aria-label=Tasks] tbody tr")
    expect(rows).to_have_count(3)
    for key, selected in (("j", 0), ("j", 1), ("k", 0)):
        page.keyboard.press(key)
        expect(rows.nth(selected)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("r")
    told(page, "The task is queued again")
    assert states(stage, "keys") == ["Cancelled", "Cancelled", "Queued"]
    page.keyboard.press("/")
    expect(page.get_by_label("Text in params")).to_be_focused()
    page.keyboard.type("image")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("text=image"))
    expect(page.locator(".chip")).to_contain_text(["queue keys", "text image"])
    page.get_by_role("link", name="Remove filter text image").click()
    page.wait_for_url(lambda url: "text=" not in url and "queue=keys" in url)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
    page.keyboard.press("j")
    expect(rows.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/tasks/[0-9a-f-]{36}"))


def test_a_search_keeps_filters_that_the_form_does_not_offer(open_as: Open) -> None:
    page = open_as("viewer", "/tasks?queue=nowhere&task_type=nothing")
    page.keyboard.press("/")
    page.keyboard.type("image")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("text=image"))
    expect(page.locator(".chip")).to_contain_text(["type nothing", "queue nowhere", "text image"])


def test_letters_work_while_a_button_has_the_focus(open_as: Open, waiting: Waiting) -> None:
    waiting("focus")
    page = open_as("operator", "/tasks?queue=focus")
    row = page.locator("[aria-label=Tasks] tbody tr").first
    page.get_by_role("button", name="Cancel all unfinished").focus()
    page.keyboard.press("j")
    expect(row).to_have_attribute("aria-selected", "true")
    page.keyboard.press("x")
    page.keyboard.press("j")
    expect(row.get_by_role("checkbox")).to_be_checked()
    expect(page.get_by_role("button", name="Cancel selected")).to_be_visible()


def test_a_new_task_appears_in_the_open_list(stage: Stage, open_as: Open, waiting: Waiting) -> None:
    page = open_as("viewer", "/tasks?queue=tail")
    expect(page.get_by_text("No matching tasks")).to_be_visible()
    waiting("tail")
    expect(page.locator("[aria-label=Tasks] tbody tr")).to_have_count(3)


def test_the_overview_tells_values_of_every_range_on_hover(stage: Stage, open_as: Open) -> None:
    stage.ask(lambda db: db.tasks.enqueue([NewTask(task_type="resize", params={"image": 1})]))
    page = open_as("viewer")
    for name, per in (
        ("5 minutes", "per minute"), ("1 hour", "per minute"), ("6 hours", "per 5 min"), ("24 hours", "per 20 min"),
        ("7 days", "per 2 h"), ("30 days", "per 12 h"),
    ):  # fmt: skip
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", name=f"Tasks {per}")).to_be_visible()
        expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "true")
    chart = page.locator("figure.chart").first
    chart.locator(".spot").last.hover()
    expect(page.locator("#tip")).to_contain_text(re.compile(r"complete: [1-9].*failed: \d", re.S))
    days = chart.locator(".axis-x span").all_inner_texts()
    assert len(days) == 5
    assert all(re.fullmatch(r"\d\d [A-Z][a-z]{2}", day) for day in days), days
    page.goto("/events")
    expect(page.locator("main time").first).to_have_attribute(
        "title", re.compile(r"^\d{4}-\d\d-\d\d .* UTC$")
    )


def test_no_table_is_wider_than_a_laptop(stage: Stage, open_as: Open) -> None:
    long = NewTask(task_type="reports.yearly_revenue_by_region", queue="bookkeeping", params={"x": "y" * 200})
    ids = [UUID(f"0189abcd-1234-7aa{n}-8bbb-000000000000") for n in (1, 2)]
    stage.ask(lambda db: db.tasks.enqueue([replace(long, id=id) for id in ids]))
    page = open_as("admin", viewport={"width": 1280, "height": 900})
    for path in PATHS:
        page.goto(path)
        expect(page.locator("main h1")).to_be_visible()
        wide = page.locator(".scroll").evaluate_all(
            "all => all.filter(s => s.scrollWidth > s.clientWidth).map(s => [s.ariaLabel, s.scrollWidth - s.clientWidth])"
        )
        assert wide == [], path
    page.set_viewport_size({"width": 390, "height": 844})
    for path in PATHS:
        page.goto(path)
        expect(page.locator("main h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_workers_without_a_supervisor_are_paused_resumed_and_drained(stage: Stage, open_as: Open) -> None:
    stage.ask(lambda db: db.workers.register(Member(id="lone", host="attic", lease_seconds=600)))
    flags = "SELECT ARRAY[paused, draining] FROM shiftboss.members WHERE worker_id = 'lone'"
    page = open_as("operator", "/workers")
    for name, confirmed, expected in (("Pause", True, [True, False]), ("Resume", False, [False, False])):
        press(row(page, "lone"), name)
        if confirmed:
            sure(page, name)
        told(page, "lone")
        assert one(stage, flags) == expected
    page.goto("/workers/lone")
    press(page, "Drain")
    sure(page, "Drain")
    told(page, "lone finishes its tasks and exits")
    assert one(stage, flags) == [False, True]
    expect(page.locator(".badge", has_text="draining")).to_be_visible()


def test_slots_are_paused_resumed_and_restarted_one_and_all(stage: Stage, open_as: Open) -> None:
    def slots() -> dict[str, Any]:
        return {one["component"]: one for one in stage.ask(lambda db: db.health.slots())}

    page = open_as("operator", "/workers")
    press(page, "Pause all")
    sure(page, "Pause all")
    told(page, "Every worker finishes its task")
    assert all(slot["paused"] for slot in slots().values())
    press(page, "Resume all")
    told(page, "Every worker is resumed")
    assert not any(slot["paused"] for slot in slots().values())

    name = next(name for name in slots() if name.endswith("worker:journal:0"))
    before = slots()[name]["pid"]
    page.goto(f"/slots/{name}")
    press(page, "Restart")
    sure(page, "Restart")
    told(page, f"{name} is being restarted")
    process = page.locator("[data-key='Process ID'] dd")
    expect(process).not_to_have_text(str(before), timeout=60_000)
    expect(page.locator(".facts .badge").first).to_have_text("healthy", timeout=60_000)
    assert slots()[name]["pid"] != before
    orders = "SELECT count(*) FROM shiftboss.audit WHERE action = 'slot.restart' AND outcome = 'done'"
    ordered = one(stage, orders)
    page.goto("/workers")
    press(page, "Restart all")
    sure(page, "Restart all")
    told(page, "Every slot is being restarted")
    assert one(stage, orders) > ordered
    for badge in range(3):
        expect(page.locator("tbody tr .badge", has_text="healthy").nth(badge)).to_be_visible(timeout=60_000)


def test_a_run_is_cancelled_from_the_overview_and_retried(stage: Stage, open_as: Open) -> None:
    params = {"steps": 1000, "pause": 0.5}
    run = stage.ask(lambda db: db.runs.start_run("survey", "utrecht", None, params, requested_by="ops"))
    state = "SELECT status FROM worker_runs WHERE id = %s"
    page = open_as("operator")
    line = page.get_by_role("row", name=re.compile("survey.*utrecht"))
    press(line, "Cancel")
    sure(page, "Cancel")
    expect(page.locator("#toasts")).to_contain_text("The run is being cancelled")
    expect(line).to_have_count(0)
    assert one(stage, state, run.id) == "failed"

    page.goto(f"/runs/{run.id}")
    expect(page.locator(".error").first).to_contain_text("cancelled: by a operator")
    press(page, "Retry")
    told(page, "A new run continues the work")
    again = one(stage, "SELECT id FROM worker_runs WHERE retry_of = %s", run.id)
    assert again is not None
    page.goto(f"/runs/{again}")
    press(page, "Cancel")
    sure(page, "Cancel")
    expect(page.locator(".facts .badge").first).to_have_text("failed")
    assert one(stage, state, again) == "failed"


def test_an_entry_is_deleted_and_a_journal_erased(stage: Stage, open_as: Open) -> None:
    raw = [{"id": f"e{n}", "user": "edda", "date": f"2030-07-0{n}", "text": f"Day {n}."} for n in (1, 2)]
    stage.ask(lambda db: db.journal.upsert_entries([parse(one).row() for one in raw]))
    kept = "SELECT count(*) FROM journal.entries WHERE user_id = 'edda'"
    page = open_as("operator", "/journal?user=edda")
    press(
        page.get_by_role("region", name="Entries").get_by_role("row", name=re.compile("e1|Day 1")), "Delete"
    )
    sure(page, "Delete")
    told(page, "The entry is deleted")
    assert one(stage, kept) == 1
    page.goto("/journal")
    press(row(page, "edda"), "Erase")
    sure(page, "Erase")
    told(page, "The journal of edda is erased: 1 entry")
    assert one(stage, kept) == 0
    expect(row(page, "edda")).to_have_count(0)


def test_failed_rows_of_a_vectorizer_are_retried(stage: Stage, open_as: Open) -> None:
    async def seed(db: Any) -> int:
        await db.execute("CREATE TABLE leaflets (id serial PRIMARY KEY, body text)")
        made: int = await db.vectorizers.create("leaflets", columns=["body"])
        await db.execute(
            "INSERT INTO ai._vectorizer_error (vectorizer_id, key, step, reason, attempts, final, failed_at)"
            " VALUES (%s, '{\"id\": \"1\"}', 'embed', 'too long', 5, true, now())",
            [made],
        )
        return made

    id = stage.ask(seed)
    page = open_as("operator", f"/vectorizers/{id}")
    expect(page.locator("main")).to_contain_text("too long")
    press(page, "Retry failed")
    told(page, "The failed rows are queued again")
    assert one(stage, "SELECT count(*) FROM ai._vectorizer_error WHERE vectorizer_id = %s", id) == 0
    stage.ask(lambda db: db.vectorizers.drop(id, drop_all=True))
