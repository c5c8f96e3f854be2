"""Bots on real processes: the fleet's workers, the command line, a kill in the middle, a user's own bot."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from bot_helpers import SAMPLE

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.extensions.bots.catalog import Catalog
from shiftboss.extensions.bots.command import run_bot
from shiftboss.extensions.bots.handlers import bot_handlers, handler_of
from shiftboss.extensions.bots.order import Bots, UnknownKey
from shiftboss.extensions.bots.registry import Bot, NoParams, load_bots
from shiftboss.extensions.bots.run import Run
from shiftboss.model.errors import NotFound, UsageError
from shiftboss.model.settings import Settings, WorkerSettings
from shiftboss.model.worker import Member
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource

Eventually = Callable[..., Awaitable[Any]]

OWN_BOT = '''
import asyncio
from pydantic import BaseModel, Field
from shiftboss.extensions.bots import Run, bot

class Slow(BaseModel):
    steps: int = Field(ge=1, le=100)

@bot("slowly")
async def slowly(run: Run, params: Slow) -> None:
    """Count, and wait for ever half way."""
    for n in range(run.checkpoint.get("n", 0), params.steps):
        run.count("steps")
        run.checkpoint = {"n": n + 1}
        await run.flush(100 * (n + 1) // params.steps)
        if n + 1 == params.steps // 2:
            await asyncio.Event().wait()
'''


@pytest.fixture
def env(database_url: str, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "own_bots.py").write_text(OWN_BOT)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path("src").resolve()), str(tmp_path)]),
        "SHIFTBOSS_DATABASE_URL": database_url,
        "SHIFTBOSS_DATA_DIR": str(tmp_path / "data"),
        "SHIFTBOSS_BOTS_MODULES": '["own_bots"]',
        "SHIFTBOSS_BOTS_SOURCE_DIR": str(SAMPLE.parent),
        "SHIFTBOSS_WORKER_LEASE_SECONDS": "1",
        "SHIFTBOSS_WORKER_BEAT_SECONDS": "0.2",
    }


@pytest.fixture
def cli(env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """`await cli("runs", "list")`: exit code, output, errors; in a thread, since commands have loops of their own."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(Path(env["PYTHONPATH"].split(os.pathsep)[1])))

    async def run(*args: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = await asyncio.to_thread(main, args)
        out, err = capfd.readouterr()
        return code, out.strip(), err.strip()

    return run


async def process_output(env: dict[str, str], *args: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *args, env=env, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().strip()


@asynccontextmanager
async def worker(env: dict[str, str], id: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shiftboss", "worker", "shiftboss.extensions.bots.app:handlers", "--id", id, env=env,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_killed_worker_fails_its_run_and_a_retry_goes_on(
    db: Database, env: dict[str, str], cli: Any, eventually: Eventually
) -> None:
    code, id, err = await cli("runs", "start", "slowly", "--steps", "4")
    assert code == 0, err

    async def run(which: str) -> dict[str, Any]:
        (row,) = await db.runs.list_runs(bot="slowly", limit=1)
        return row

    async def half_way() -> bool:
        return (await run(id))["progress"] == 50

    async def failed() -> bool:
        await db.workers.rescue()
        return (await run(id))["status"] == "failed"

    async with worker(env, "victim") as process:
        await eventually(half_way, timeout=40)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await eventually(failed, timeout=20)
    row = await run(id)
    assert (row["progress"], row["counters"]) == (50, {"steps": 2})
    assert row["error_message"] == "its worker stopped beating"

    code, again, err = await cli("runs", "retry", id)
    assert (code, again != id) == (0, True), err
    args = ("--steps", "4", "--worker-run-id", again)
    assert await process_output(env, "shiftboss", "bot", "slowly", *args) == '{"steps":2}'
    row = await run(again)
    assert (row["status"], row["progress"], str(row["retry_of"])) == ("finished", 100, id)


async def test_cancel_stops_a_bot_in_the_middle(db: Database, eventually: Eventually) -> None:
    handlers, settings = bot_handlers(), WorkerSettings(beat_seconds=0.2)
    crawler = Bot("crawler", crawl, NoParams, "runs until it is stopped")
    handlers.add(handler_of(crawler, Bots({"crawler": crawler}, Catalog()), Settings.load({})))
    run = await db.runs.start_run("crawler")
    async with Worker(DatabaseSource(db), handlers, Member(id="w"), settings, db=db):

        async def at(status: str, percent: int) -> bool:
            row = await db.runs.get(run.id)
            return row is not None and (row["status"], row["progress"]) == (status, percent)

        await eventually(lambda: at("running", 30), timeout=20)
        await db.runs.cancel_run(run.id, "by ann")
        await eventually(lambda: at("failed", 30), timeout=20)
    row = await db.runs.get(run.id)
    assert row is not None
    assert (row["error_message"], row["counters"]) == ("cancelled: by ann", {"pages": 3})


async def crawl(run: Run) -> None:
    run.count("pages", 3)
    await run.flush(30)
    await asyncio.Event().wait()


async def test_the_command_line_with_and_without_a_run(db: Database, env: dict[str, str], cli: Any) -> None:
    args = ("--city", "rotterdam", "--category", "bakery", f"--source={SAMPLE}")
    out = await process_output(env, "shiftboss.extensions.bots.discovery", *args)
    assert orjson.loads(out) == {"skipped": 1, "found": 3, "inserted": 3}
    assert await db.runs.count_runs() == 0, "without the flag nothing is recorded"

    run = await db.runs.start_run("discovery", "rotterdam", params={"limit": 50})
    counters = {"found": 3, "skipped": 1, "unchanged": 3}
    more = ("--category", "bakery", f"--source={SAMPLE}", "--worker-run-id", str(run.id))
    out = await process_output(env, "shiftboss", "bot", "discovery", *more)
    assert orjson.loads(out) == counters
    row = await db.runs.get(run.id)
    assert row is not None
    assert (row["status"], row["progress"], row["counters"]) == ("finished", 100, counters)
    assert (row["category"], row["params"]) == ("bakery", {"limit": 50, "source": str(SAMPLE)})
    code, out, _ = await cli("runs", "list", "--json")
    assert (code, orjson.loads(out)[0]["id"]) == (0, str(run.id))


async def test_the_start_of_a_run_id_names_the_run(db: Database, cli: Any) -> None:
    ids = ["0189abcd-1234-7aaa-8bbb-000000000001", "0189abcd-1234-7aaa-8bbb-000000000002"]
    for id, city in zip(ids, ("delft", "leiden"), strict=True):
        made = await db.runs.start_run("discovery", city)
        await db.execute("UPDATE worker_runs SET task_id = NULL WHERE id = %s", [made.id])
        await db.execute("UPDATE worker_runs SET id = %s WHERE id = %s", [id, made.id])
    other = await db.runs.start_run("verify", "gouda")
    for command in (("show",), ("cancel",), ("retry",), ("watch",)):
        code, _, told = await cli("runs", *command, "0189abcd-1234")
        assert code == 2, command
        assert "more than one run id starts with 0189abcd-1234" in " ".join(told.split())
        assert all(id in " ".join(told.split()) for id in ids)
        assert (await cli("runs", *command, "xyz!"))[0] == 2, command
        assert (await cli("runs", *command, "0000"))[0] == 3, command
    code, shown, _ = await cli("runs", "show", str(other.id)[:18], "--json")
    assert (code, orjson.loads(shown)["city"]) == (0, "gouda")
    assert (await cli("runs", "cancel", str(other.id).replace("-", "")[:16]))[:2] == (0, "cancelled")
    code, again, _ = await cli("runs", "retry", str(other.id)[:18])
    assert code == 0
    code, listed, _ = await cli("runs", "list", "--bot", "verify")
    assert [line.split("\t")[0] for line in listed.splitlines()] == [again, str(other.id)]


async def test_an_interrupted_command_ends_its_run(
    db: Database, env: dict[str, str], cli: Any, eventually: Eventually
) -> None:
    _, id, _ = await cli("runs", "start", "slowly", "--steps", "4")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shiftboss", "bot", "slowly", "--worker-run-id", id, env=env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip

    async def half_way() -> bool:
        return (await db.runs.list_runs())[0]["progress"] == 50

    await eventually(half_way, timeout=60)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 1
    assert b"cancelled: interrupted" in err
    (row,) = await db.runs.list_runs()
    assert (row["status"], row["progress"], row["error_message"]) == ("failed", 50, "cancelled: interrupted")


async def test_a_run_that_can_not_be_taken_says_why(
    db: Database, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", env["SHIFTBOSS_DATABASE_URL"])
    run = await db.runs.start_run("discovery", "rotterdam", params={"limit": 9})
    for problem, args in {
        "there is no run": ["--worker-run-id", str(uuid4())],
        "is not a run id": ["--worker-run-id", "7"],
        "is for city rotterdam, not delft": ["--city", "delft", "--worker-run-id", str(run.id)],
        "has other parameters": ["--limit", "5", "--worker-run-id", str(run.id)],
        "there is no category 'unicorn'": ["--category", "unicorn"],
        "limit: Input should be greater": ["--limit=0"],
    }.items():
        with pytest.raises((UsageError, NotFound), match=problem):
            await run_bot("discovery", args)
    await db.runs.cancel_run(run.id)
    with pytest.raises(UsageError, match="is already failed"):
        await run_bot("discovery", ["--worker-run-id", str(run.id)])
    assert await db.places.count_places() == 0


def test_the_files_are_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    cities, categories = tmp_path / "cities.yml", tmp_path / "categories.yml"
    good = "cities:\n  gouda: {name: Gouda, country: NL, box: [51.98, 4.66, 52.04, 4.76]}\n"
    cities.write_text(good)
    categories.write_text(
        "categories:\n  bakery: {name: Bakery, tags: {shop: [bakery]}, description: bread}\n"
    )
    catalog = Catalog(tmp_path)
    assert set(catalog.cities) == {"gouda"}
    cities.write_text(good + "  leiden: {name: Leiden, country: NL, box: [52.11, 4.43, 52.19, 4.53]}\n")
    assert set(catalog.cities) == {"gouda", "leiden"}
    for broken in ("cities: [", "towns: {}", "cities:\n  x: {name: X, country: NL, box: [9, 9, 1, 1]}\n", ""):
        cities.write_text(broken)
        assert set(catalog.cities) == {"gouda", "leiden"}, broken
        assert "cities.yml" in catalog.errors[0]
    cities.unlink()
    assert set(catalog.cities) == {"gouda", "leiden"}
    cities.write_text(good)
    assert set(catalog.cities) == {"gouda"}
    assert catalog.errors == []
    with pytest.raises(UnknownKey, match="atlantis") as unknown:
        Bots(load_bots(), catalog).check("verify", "atlantis")
    assert (unknown.value.fields or [])[0]["allowed"] == ["gouda"]


async def test_a_run_keeps_the_message_and_its_attempt_the_traceback(
    db: Database, eventually: Eventually
) -> None:
    handlers = bot_handlers()
    breaks = Bot("breaks", break_down, NoParams, "fails in a nested call")
    handlers.add(handler_of(breaks, Bots({"breaks": breaks}, Catalog()), Settings.load({})))
    run = await db.runs.start_run("breaks")
    async with Worker(DatabaseSource(db), handlers, Member(id="w"), WorkerSettings(), db=db):

        async def failed() -> Any:
            row = await db.runs.get(run.id)
            return row if row is not None and row["status"] == "failed" else None

        row = await eventually(failed, timeout=20)
    assert row["error_message"] == "RuntimeError: two\n\nparagraphs"
    (attempt,) = await db.fetch(
        "SELECT error FROM shiftboss.past_attempts WHERE task_id = %s", [row["task_id"]]
    )
    assert "Traceback (most recent call last)" in attempt["error"]
    assert "in break_down" in attempt["error"]


async def break_down(run: Run) -> None:
    try:
        raise ValueError("one")
    except ValueError as error:
        raise RuntimeError("two\n\nparagraphs") from error


async def test_a_traceback_alone_ends_in_its_message(db: Database) -> None:
    text = "Traceback (most recent call last):\n  File \"x\", line 1\nKeyError: 'a'\n"
    for given, message in {text: "KeyError: 'a'", "plain": "plain", "a\nb": "a\nb"}.items():
        row = await db.fetch_one("SELECT shiftboss.error_summary(%s) AS message", [given])
        assert row is not None
        assert row["message"] == message


async def test_counters_are_reported_without_a_step(db: Database, eventually: Eventually) -> None:
    handlers = bot_handlers()
    counts = Bot("counts", count_only, NoParams, "counts and never steps")
    handlers.add(handler_of(counts, Bots({"counts": counts}, Catalog()), Settings.load({})))
    run = await db.runs.start_run("counts")
    async with Worker(DatabaseSource(db), handlers, Member(id="w"), WorkerSettings(beat_seconds=0.2), db=db):

        async def told() -> bool:
            row = await db.runs.get(run.id)
            return row is not None and row["counters"] == {"pages": 37}

        await eventually(told, timeout=20)
        kept = await db.runs.kept(run.id)
        assert kept == {"checkpoint": None, "counters": {"pages": 37}}, "the checkpoint waits for a step"
        await db.runs.cancel_run(run.id)


async def count_only(run: Run) -> None:
    run.checkpoint = {"page": 38}
    run.count("pages", 20)
    await asyncio.sleep(0)
    run.count("pages", 17)
    await asyncio.Event().wait()
