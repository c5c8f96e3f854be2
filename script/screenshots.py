"""Take screenshots of every page of the dashboard at three widths, light and dark, with realistic data.

All of them go to build/screenshots. Those that the documentation shows are also copied to docs/images.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.extensions.page.stage import CHROMIUM, FLAGS, Stage, staged  # noqa: E402

from shiftboss.db import Database  # noqa: E402
from shiftboss.db.embedded import EmbeddedServer  # noqa: E402
from shiftboss.db.migrate import migrate  # noqa: E402
from shiftboss.extensions.journal.demo import import_sample  # noqa: E402
from shiftboss.model.access import Role  # noqa: E402
from shiftboss.model.task import NewTask  # noqa: E402

BUILD = ROOT / "build" / "screenshots"
IMAGES = ROOT / "docs" / "images"
DOCUMENTED = {"overview-1280-light.png": "overview-light.png", "tasks-1280-dark.png": "tasks-dark.png"}
PAGES = {
    "overview": "/",
    "tasks": "/tasks",
    "tasks-failed": "/tasks?status=Failed",
    "approvals": "/approvals",
    "workers": "/workers",
    "runs": "/runs?run=survey",
    "queues": "/queues",
    "schedules": "/schedules",
    "providers": "/providers",
    "ai-calls": "/ai/calls",
    "ai-limits": "/ai/limits",
    "vectorizers": "/vectorizers",
    "journal": "/journal",
    "events": "/events",
    "access": "/access",
}
WIDTHS = {1280: 900, 1920: 1080, 390: 844}
QUESTIONS = 2
DETAILS = {
    "task": "task_type = 'research'",
    "task-failed": "task_type = 'charge' AND status = 'Failed'",
    "task-running": "task_type = 'render' AND status = 'In Progress'",
    "task-waiting": "task_type = 'resize' AND status = 'Queued'",
}
# One object of each kind that has its own page.
OBJECTS = {
    "run": ("/runs/{}", "SELECT id FROM worker_runs WHERE status = 'running'"),
    "run-failed": ("/runs/{}", "SELECT id FROM worker_runs WHERE status = 'failed'"),
    "ai-call": ("/ai/calls/{}", "SELECT call_id FROM shiftboss.ai_calls WHERE task_id IS NOT NULL"),
    "vectorizer": ("/vectorizers/{}", "SELECT id FROM ai.vectorizer"),
    "journal-entry": ("/journal/{}", "SELECT id FROM journal.entries ORDER BY written_at DESC"),
    "worker": ("/workers/{}", "SELECT worker_id FROM active_workers_health ORDER BY worker_id"),
    "slot": ("/slots/{}", "SELECT component FROM health ORDER BY component"),
}
SPREAD = """
    INSERT INTO shiftboss.stats (minute, worker_id, queue, task_type, completed, failed, seconds, buckets)
    SELECT minute - n * interval '1 minute', worker_id, queue, task_type, completed * (20 + n * 7 % 11) / 60,
           CASE WHEN n % 13 = 0 THEN failed ELSE 0 END, seconds * (20 + n * 7 % 11) / 60, buckets
    FROM shiftboss.stats, generate_series(1, 58) AS n WHERE minute > now() - interval '3 minutes'
    ON CONFLICT DO NOTHING
"""
DOCUMENTS = (
    "Bread rises best in a warm kitchen", "The ferry leaves the harbour at nine",
    "A queue that never loses a task", "Rain all week, then a clear cold Sunday",
)  # fmt: skip


async def seed(db: Database) -> None:
    """Enqueue tasks that complete, wait, fail, run for long and ask for an approval."""
    await db.execute("CREATE TABLE notes (id serial PRIMARY KEY, body text NOT NULL)")
    await db.execute("INSERT INTO notes (body) SELECT unnest(%s::text[])", [list(DOCUMENTS)])
    await db.execute("SELECT ai.create_vectorizer('notes'::regclass, columns => ARRAY['body'])")
    await import_sample(db)
    await db.tasks.set_limit("queue", "gpu", max_running=2, rate=30, rate_period=timedelta(minutes=1))
    tasks = [NewTask(task_type="resize", params={"image": n}) for n in range(800)]
    tasks += [NewTask(task_type="charge", params={"order": 4000 + n}, max_attempts=2) for n in range(9)]
    tasks += [NewTask(task_type="render", queue="gpu", params={"scene": f"harbour {n}"}) for n in range(6)]
    tasks += [NewTask(task_type="resize", queue="reports", params={"image": n}) for n in range(40)]
    tasks += [NewTask(task_type="research", params={"topic": topic}) for topic in ("tides", "bridges")]
    tasks += [NewTask(task_type="resize", tenant=name, params={"image": 7}) for name in ("acme", "hooli")]
    await db.tasks.enqueue(tasks)
    await db.tasks.pause("queue", "reports", "until the month is closed")
    await db.runs.start_run("survey", "rotterdam", "bakery", {"steps": 400, "pause": 0.5}, requested_by="ops")
    await db.runs.start_run("survey", "amsterdam", None, {"steps": 5, "pause": 0.1}, requested_by="ops")
    await db.runs.start_run("verify", "utrecht", None, {"limit": -1}, requested_by="ops")
    await db.fairness.set_tenant_weight("acme", 3.0)
    await db.ai.set_ai_limit("tenant", "acme", daily_budget=5.0, requests_per_minute=60)
    await db.ai.set_ai_limit("task_type", "research", daily_budget=0.5)
    soon = datetime.now(UTC) + timedelta(hours=5)
    report = {"task_type": "resize", "queue": "reports", "tenant": "acme", "params": {"image": 1}}
    await db.schedules.put("nightly-report", "0 3 * * 1-5", "Europe/Amsterdam", report, "latest", soon)
    for name, role in (("grafana", Role.VIEWER), ("deploy", Role.OPERATOR)):
        await db.tokens.create_token(name, role)


async def settled(db: Database) -> bool:
    row = await db.fetch_one("SELECT count(*) AS n FROM tasks WHERE status = 'Queued' AND queue = 'default'")
    return bool(row and row["n"] <= QUESTIONS and len(await db.steps.approvals()) == QUESTIONS)


async def until_settled(db: Database) -> None:
    for _ in range(600):
        if await settled(db):
            return
        await asyncio.sleep(0.5)


async def details(db: Database) -> dict[str, str]:
    """Return the paths of pages that exist only with data, and of dialogs."""
    found = {}
    for name, condition in DETAILS.items():
        row = await db.fetch_one(f"SELECT id FROM tasks WHERE {condition} LIMIT 1")  # noqa: S608
        if row:
            found[name] = f"/tasks/{row['id']}"
    for name, (path, query) in OBJECTS.items():
        row = await db.fetch_one(f"{query} LIMIT 1")
        if row:
            found[name] = path.format(next(iter(row.values())))
    return found | {
        "overview-5m": "/?span=5m",
        "overview-30d": "/?span=30d",
        "tasks-filtered": "/tasks?status=Complete&task_type=resize&queue=default",
        "tasks-nothing": "/tasks?queue=nowhere",
        "journal-user": "/journal?user=mara",
        "journal-search": "/journal?q=a+day+by+the+sea",
        "vectorizer-search": "/vectorizers?q=something+to+bake",
        "new-task": "/tasks?ask=new&arg=render",
        "queue-limits": "/queues?ask=limit&arg=queue+gpu",
        "schedule-edit": "/schedules?ask=edit&arg=nightly-report",
        "scale": "/workers?ask=scale",
        "not-found": "/tasks/01890000-0000-7000-8000-000000000000",
        "api": "/api/docs",
    }


async def spread(db: Database) -> None:
    """Spread the statistics over the last hour, so that the charts show more than one point."""
    await db.execute(SPREAD)


def shoot(page: Page, path: str, file: Path) -> None:
    page.goto(path)
    page.wait_for_selector("main h1")
    page.wait_for_timeout(300)  # the script writes relative times
    page.screenshot(path=file)
    picture = Image.open(file).convert("RGB")
    picture.quantize(palette=palette(picture), dither=Image.Dither.NONE).save(file, optimize=True)


def palette(picture: Image.Image) -> Image.Image:
    """Keep the 128 most common colours and approximate the rest, so that thin lines keep their colour."""
    counted: list[Any] = list(picture.getcolors(picture.width * picture.height) or [])
    common = [value for _, colour in sorted(counted, reverse=True)[:128] for value in colour]
    others = picture.quantize(128, method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    made = Image.new("P", (1, 1))
    made.putpalette([*common, *others][: 3 * 256])
    return made


def pictures(stage: Stage, browser: Browser, pages: dict[str, str], prefix: str = "") -> None:
    context = browser.new_context(base_url=stage.url)
    page = context.new_page()
    code = stage.ask(lambda db: db.tokens.create_login("ops", Role.ADMIN, timedelta(minutes=5)))
    page.goto(f"/login/{code}")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("/")
    for width, height in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            for name, path in pages.items():
                shoot(page, path, BUILD / f"{prefix}{name}-{width}-{scheme}.png")
    context.close()


def main() -> None:
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    folder = Path(tempfile.mkdtemp(prefix="shiftboss-pictures-"))
    server = EmbeddedServer(folder / "server", linger=0)
    url = server.acquire()
    try:
        asyncio.run(migrate(url))
        with staged(url, folder, "all=2", "gpu=1") as stage, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            pictures(stage, browser, PAGES, "empty-")
            stage.ask(seed)
            stage.ask(until_settled)
            stage.ask(spread)
            pictures(stage, browser, PAGES | stage.ask(details))
    finally:
        server.release()
        shutil.rmtree(folder, ignore_errors=True)
    for taken, name in DOCUMENTED.items():
        shutil.copy(BUILD / taken, IMAGES / name)
    print(f"{len(list(BUILD.glob('*.png')))} screenshots are in {BUILD}")


if __name__ == "__main__":
    main()
