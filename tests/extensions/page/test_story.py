"""One task on the page: its timeline, its question, its stream and log, its graph, and running it again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from tests.extensions.page.stage import ROOT, Stage
from tests.extensions.page.test_actions import Open, fill, force, one, press, row, sure, told

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def asking(stage: Stage, topic: str) -> UUID:
    """A task that asks whether to publish."""
    task = NewTask(task_type="research", params={"topic": topic, "rest": 0.2})
    (made,) = stage.ask(lambda db: db.tasks.enqueue([task]))
    return made.id


def entry(page: Page, word: str, text: str) -> None:
    line = page.locator(".story li").filter(has=page.locator(f".badge:text-is('{word}')"))
    expect(line.filter(has_text=text).first).to_be_visible()


def test_a_task_tells_its_whole_story_and_goes_on_with_an_answer(stage: Stage, open_as: Open) -> None:
    id = asking(stage, "tides")
    page = open_as("operator", f"/tasks/{id}")
    expect(page.get_by_text("Publish the text on tides?").first).to_be_visible(timeout=60_000)
    for word, text in (
        ("attempt", "suspended"), ("step", "search"), ("step", "draft tides in books"), ("sleep", "let it rest"),
        ("child task", "summarise"), ("AI call", "sentiment_analysis"), ("question", "Publish the text on tides?"),
    ):  # fmt: skip
        entry(page, word, text)
    stream = page.locator("section", has=page.get_by_role("heading", name="Stream"))
    expect(stream.locator("pre")).to_contain_text("Notes on tides in the press: three of four")
    expect(page.get_by_role("log")).to_contain_text("one source is older than a year")
    graph = page.get_by_role("region", name="Graph of tasks")
    expect(graph.get_by_role("link", name="summarise, complete")).to_be_visible()

    page.get_by_label("Comment").fill("Well done")
    press(page, "Yes")
    told(page, "The task continues with your answer")
    expect(page.locator("h2", has_text="Result")).to_be_visible(timeout=60_000)
    expect(page.locator("h2", has_text="Question")).to_have_count(0)
    entry(page, "question", "answered by a operator")
    step = stage.ask(lambda db: db.insights.life.steps(id))
    (asked,) = (found for found in step if found["question"])
    assert (asked["result"], asked["answered_by"]) == ({"ok": True, "comment": "Well done"}, "a operator")
    audit = stage.ask(
        lambda db: db.fetch_one(
            "SELECT * FROM shiftboss.audit WHERE action = 'task.answer' AND target = %s", [str(id)]
        )
    )
    assert audit is not None
    assert (audit["actor"], audit["details"]["answer"]) == (
        "a operator",
        {"ok": True, "comment": "Well done"},
    )


def test_a_question_waits_on_a_page_of_its_own_for_those_who_may_answer(stage: Stage, open_as: Open) -> None:
    id = asking(stage, "bread")
    viewer = open_as("viewer", "/approvals")
    expect(viewer.get_by_text("Publish the text on bread?")).to_be_visible(timeout=60_000)
    expect(viewer.locator("main form.fields")).to_have_count(0)
    force(viewer, "answer", f"{id} approval#1")
    expect(viewer.get_by_role("status")).to_contain_text("needs operator")

    page = open_as("operator", "/approvals")
    question = page.locator(".question", has_text="bread")
    question.get_by_label("Comment").fill("Too long")
    press(question, "No")
    told(page, "The task continues with your answer")
    expect(question).to_have_count(0)
    expect(page.locator("#toasts .bad")).to_have_count(0)
    result = "SELECT result FROM shiftboss.steps WHERE task_id = %s AND question IS NOT NULL"
    assert one(stage, result, id) == {"ok": False, "comment": "Too long"}


def test_a_new_task_is_made_with_a_form_of_its_schema(stage: Stage, open_as: Open) -> None:
    page = open_as("operator", "/tasks")
    press(page, "New task")
    page.locator("#sheet").get_by_role("link", name="render", exact=True).click()
    sheet = page.locator("#sheet")
    expect(sheet.get_by_label("Seconds")).to_have_value("60.0")
    sheet.get_by_label("Scene").fill("dawn")
    sheet.get_by_label("Seconds").fill("0.1")
    press(sheet, "Enqueue")
    page.get_by_role("link", name="Open task").click()
    expect(page.locator("h1")).to_contain_text("render")
    made = 'SELECT count(*) FROM tasks WHERE task_type = \'render\' AND params = \'{"scene": "dawn", "seconds": 0.1}\''
    assert one(stage, made) == 1

    page.goto("/tasks")
    press(page, "New task")
    press(page, "Other type")
    press(fill(page, task_type="unheard-of", params="[]"), "Enqueue")
    expect(page.locator("#sheet .told")).to_contain_text("params must be a JSON object", ignore_case=True)
    press(fill(page, params='{"a": 1}'), "Enqueue")
    expect(page.locator("#sheet")).to_contain_text("no worker serves the task type 'unheard-of'")
    assert one(stage, "SELECT params FROM tasks WHERE task_type = 'unheard-of'") == {"a": 1}


def test_a_task_is_run_again_with_other_arguments(stage: Stage, open_as: Open) -> None:
    (made,) = stage.ask(lambda db: db.tasks.enqueue([NewTask(task_type="resize", params={"image": 31})]))
    page = open_as("operator", f"/tasks/{made.id}")
    press(page, "Run again …")
    sheet = page.locator("#sheet")
    expect(sheet.get_by_label("Image")).to_have_value("31")
    sheet.get_by_label("Image").fill("1.5")
    sheet.locator("form").evaluate("form => form.noValidate = true")
    press(sheet, "Enqueue")
    expect(page.locator("#sheet .told")).to_contain_text(
        "arguments of resize are not valid", ignore_case=True
    )
    sheet.get_by_role("link", name="Edit as JSON").click()
    press(fill(page, params="nonsense"), "Enqueue")
    expect(page.locator("#sheet .told")).to_contain_text("params is not JSON", ignore_case=True)
    press(fill(page, params='{"image": 32}'), "Enqueue")
    page.get_by_role("link", name="Open task").click()
    expect(page.locator("main pre").first).to_contain_text("32")
    assert one(stage, "SELECT count(*) FROM tasks WHERE params = '{\"image\": 32}'") == 1


def test_what_is_copied_enqueues_the_same_task(stage: Stage, open_as: Open) -> None:
    params = {"scene": 'it\'s a "dawn" $HOME', "seconds": 0.1}
    (made,) = stage.ask(
        lambda db: db.tasks.enqueue([NewTask(task_type="render", queue="gpu2", params=params)])
    )
    page = open_as("viewer", f"/tasks/{made.id}")
    cli, python = (text.strip() for text in page.locator(".snippet pre").all_inner_texts())
    environment = os.environ | {
        "SHIFTBOSS_DATABASE_URL": stage.database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
    }  # fmt: skip
    subprocess.run(cli, shell=True, check=True, env=environment, capture_output=True)
    script = (
        "import asyncio\nfrom shiftboss import App\n"
        f"async def main():\n    async with App('copy') as app:\n        {python}\nasyncio.run(main())"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True)
    rows = stage.ask(lambda db: db.fetch("SELECT params FROM tasks WHERE queue = 'gpu2'"))
    assert [found["params"] for found in rows] == [params] * 3


def test_the_graph_shows_tasks_around_it_also_after_they_have_ended(stage: Stage, open_as: Open) -> None:
    async def chain(db: Database) -> list[UUID]:
        ids: list[UUID] = []
        for n in range(3):
            new = NewTask(task_type="resize", params={"image": n}, depends_on=ids[-1:])
            ids += [made.id for made in await db.tasks.enqueue([new])]
        return ids

    first, middle, last = stage.ask(chain)
    page = open_as("viewer", f"/tasks/{middle}")
    graph = page.get_by_role("region", name="Graph of tasks")
    expect(graph.get_by_role("link", name="resize, complete")).to_have_count(3, timeout=60_000)
    expect(graph.locator("a[aria-current]")).to_have_attribute("href", f"/tasks/{middle}")
    graph.locator(f"a[href='/tasks/{last}']").click()
    page.wait_for_url(f"**/tasks/{last}")
    expect(graph.locator(f"a[href='/tasks/{first}']")).to_be_visible()


def test_ai_limits_are_set_changed_and_removed(stage: Stage, open_as: Open) -> None:
    page = open_as("operator", "/ai/limits")
    press(page, "Add limit")
    press(fill(page, scope="tenant", name="initech"), "Set")
    expect(page.locator("#sheet .told")).to_contain_text("at least one limit is needed", ignore_case=True)
    press(fill(page, daily_budget="2.5", requests_per_minute="60"), "Set")
    told(page, "The limits of tenant initech are saved")
    limits = "SELECT array[daily_budget, requests_per_minute, tokens_per_minute] FROM shiftboss.ai_limits WHERE name = 'initech'"
    assert [found and float(found) for found in one(stage, limits)] == [2.5, 60.0, None]
    line = page.get_by_role("row", name=re.compile("initech"))
    expect(line).to_contain_text("of $2.50")
    press(line, "Edit")
    press(fill(page, daily_budget="5", requests_per_minute="", tokens_per_minute="900"), "Set")
    told(page, "The limits of tenant initech are saved")
    assert [found and float(found) for found in one(stage, limits)] == [5.0, None, 900.0]
    press(line, "Remove")
    sure(page, "Remove")
    told(page, "The limits of tenant initech are removed")
    assert one(stage, limits) is None
    audit = "SELECT count(*) FROM shiftboss.audit WHERE action = 'ai.limit' AND target = 'tenant initech' AND outcome = 'done'"
    assert one(stage, audit) == 3


def test_an_ai_call_is_found_and_shown_with_its_texts(stage: Stage, open_as: Open) -> None:
    async def seed(db: Any) -> UUID:
        id = UUID(int=7)
        await db.ai.ai_configure(
            "openai", model="m", requests_per_minute=None, tokens_per_minute=None, daily_budget=None,
            failure_limit=5, recovery=30,
        )  # fmt: skip
        await db.ai.admit_call(
            id, provider="openai", model="gpt", kind="completion", task_type="report", tokens=10, cost=0.01,
            lease=60, tenant="hooli",
        )  # fmt: skip
        prompt = {"messages": [{"role": "user", "content": "Three names for a cat"}]}
        await db.ai.settle_call(
            id, "ok", prompt_tokens=700, completion_tokens=34, cost=0.0125, latency_ms=950.0,
            prompt=prompt, answer={"text": "Tom, Kit, Ash"}, keep_text=60.0,
        )  # fmt: skip
        return id

    id = stage.ask(seed)
    page = open_as("viewer", "/ai/calls")
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("Tenant").fill("hooli")
    press(page, "Show")
    expect(page.locator(".chip")).to_contain_text("tenant hooli")
    line = row(page, str(id)[:13])
    for text in ("734", "$0.0125", "950 ms", "ok"):
        expect(line).to_contain_text(text)
    line.get_by_role("link").first.click()
    for text in ("Three names for a cat", "Tom, Kit, Ash", "$0.012500"):
        expect(page.locator("main")).to_contain_text(text)
