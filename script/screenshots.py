"""Pictures of every page of the dashboard, light and dark, of a fleet at work. Run by script/screenshots."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from datetime import timedelta
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
from shiftboss.model.task import NewTask  # noqa: E402

IMAGES = ROOT / "docs" / "images"
PAGES = {
    "overview": "/",
    "tasks": "/tasks",
    "workers": "/workers",
    "runs": "/runs?run=survey",
    "queues": "/queues",
    "journal": "/journal?user=mara",
    "vectorizers": "/vectorizers",
    "schedules": "/schedules",
    "providers": "/providers",
    "events": "/events",
    "access": "/access",
}
WIDE, TALL = 1280, 900
DOCUMENTS = (
    "Bread rises best in a warm kitchen", "The ferry leaves the harbour at nine",
    "A queue that never loses a task", "Rain all week, then a clear cold Sunday",
)  # fmt: skip


async def seed(db: Database) -> None:
    """Work of every kind: done, waiting, held back, failing, long."""
    await db.execute("CREATE TABLE notes (id serial PRIMARY KEY, body text NOT NULL)")
    await db.execute("INSERT INTO notes (body) SELECT unnest(%s::text[])", [list(DOCUMENTS)])
    await db.execute("SELECT ai.create_vectorizer('notes'::regclass, columns => ARRAY['body'])")
    await import_sample(db)
    await db.tasks.set_limit("queue", "gpu", max_running=2, rate=30, rate_period=timedelta(minutes=1))
    tasks = [NewTask(task_type="resize", params={"image": n}) for n in range(800)]
    tasks += [NewTask(task_type="charge", params={"order": 4000 + n}, max_attempts=2) for n in range(9)]
    tasks += [NewTask(task_type="render", queue="gpu", params={"scene": f"harbour {n}"}) for n in range(6)]
    tasks += [NewTask(task_type="resize", queue="reports", params={"image": n}) for n in range(40)]
    await db.tasks.enqueue(tasks)
    await db.tasks.pause("queue", "reports", "until the month is closed")
    await db.runs.start_run("survey", "rotterdam", "bakery", {"steps": 400, "pause": 0.5}, requested_by="ops")
    await db.runs.start_run("survey", "amsterdam", None, {"steps": 5, "pause": 0.1}, requested_by="ops")


async def settled(db: Database) -> bool:
    row = await db.fetch_one("SELECT count(*) AS n FROM tasks WHERE status = 'Queued' AND queue = 'default'")
    return bool(row and row["n"] == 0)


async def until_settled(db: Database) -> None:
    for _ in range(600):
        if await settled(db):
            return
        await asyncio.sleep(0.5)


def shoot(page: Page, path: str, file: Path) -> None:
    page.goto(path)
    page.wait_for_selector("main h1")
    page.wait_for_timeout(300)  # the script writes relative times
    page.screenshot(path=file)
    picture = Image.open(file).convert("RGB")
    picture.quantize(palette=palette(picture), dither=Image.Dither.NONE).save(file, optimize=True)


def palette(picture: Image.Image) -> Image.Image:
    """The common colours as they are, and for the rest some of every part: a thin line keeps its own."""
    counted: list[Any] = list(picture.getcolors(picture.width * picture.height) or [])
    common = [value for _, colour in sorted(counted, reverse=True)[:128] for value in colour]
    others = picture.quantize(128, method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    made = Image.new("P", (1, 1))
    made.putpalette([*common, *others][: 3 * 256])
    return made


def pictures(stage: Stage, browser: Browser) -> None:
    context = browser.new_context(base_url=stage.url, viewport={"width": WIDE, "height": TALL})
    page = context.new_page()
    page.goto(f"/login/{stage.code}")
    page.get_by_role("button", name="Log in").click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for name, path in PAGES.items():
            shoot(page, path, IMAGES / f"{name}-{scheme}.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 390, "height": 844})
    shoot(page, "/", IMAGES / "overview-phone.png")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="shiftboss-pictures-"))
    server = EmbeddedServer(folder / "server", linger=0)
    url = server.acquire()
    try:
        asyncio.run(migrate(url))
        with staged(url, folder, "all=2", "gpu=1") as stage, sync_playwright() as playwright:
            stage.ask(seed)
            stage.ask(until_settled)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            pictures(stage, browser)
    finally:
        server.release()
        shutil.rmtree(folder, ignore_errors=True)
    for picture in sorted(IMAGES.glob("*.png")):
        print(f"{picture.stat().st_size // 1024:4} KB  {picture.name}")


if __name__ == "__main__":
    main()
