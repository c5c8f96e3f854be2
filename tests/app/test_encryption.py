"""Encrypted payloads: no clear text of a task is in a dump, in stored reports or in the worker's log."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shiftboss import group
from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.db.insights import TaskFilter
from shiftboss.db.server import programs, server_account
from shiftboss.kit import Kit
from shiftboss.leader.schedules import Cron
from shiftboss.leader.schedules import task as order
from shiftboss.model.access import Principal, Role
from shiftboss.model.codec import KeyMissing, current, new_key, use
from shiftboss.model.errors import DatabaseUnavailable, ShiftbossError, TaskFailed
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.operations import Operations
from shiftboss.worker.handlers import Handlers
from tests.conftest import as_superuser, outage
from tests.worker.conftest import StartWorker, start_worker

from .secret_tasks import apart, app, echo, fail, join, many, talk, wait

__all__ = ["start_worker"]
SECRET = "swordfish-7391"
VARIABLE = "SHIFTBOSS_ENCRYPTION_KEYS"
ANN = Principal("ann", Role.ADMIN)


@contextmanager
def keys(*given: str) -> Iterator[None]:
    """Have these keys in this process and in those that it starts."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = " ".join(given)
    try:
        use(None)
        yield
    finally:
        os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})
        use(None)


@pytest.fixture(autouse=True)
def _keys() -> Iterator[None]:
    with keys(new_key()):
        yield


def dump(url: str) -> str:
    pg_dump = programs(server_account()) / "pg_dump"
    return subprocess.run([pg_dump, as_superuser(url)], check=True, capture_output=True, text=True).stdout


async def _everything(db: Database, eventually: Callable[..., Any]) -> dict[str, Any]:
    """Say the secret in every way there is; what is read back."""
    operations = Operations(db, Settings.load())
    async with app, app.worker():
        told = await talk.options(dedup_key=SECRET).enqueue(SECRET)
        again = await talk.options(dedup_key=SECRET).enqueue(SECRET)
        assert (again.id, again.created) == (told.id, False)
        await app.send_event("news", {"event": SECRET})
        question = await eventually(lambda: db.steps.approvals(told.id), 30)
        with pytest.raises(ShiftbossError):
            await operations.answer(ANN, told.id, {"not": SECRET})
        await operations.answer(ANN, told.id, SECRET)
        failed, parts = await fail.enqueue(SECRET), await apart.enqueue(SECRET)
        broken, batch = await apart.enqueue(SECRET + "!"), await many.enqueue(SECRET)
        joined = await app.enqueue(group(echo.call(SECRET), echo.call(SECRET)).then(join, mine=SECRET))
        put_off = await wait.enqueue(SECRET)
        dropped = await echo.options(delay=3600).enqueue(SECRET)
        await operations.cancel_tasks(ANN, [dropped.id], f"no {SECRET}")
        alert = {"rule": "r", "subject": "", "severity": "warning", "message": f"it says {SECRET}"}
        await db.alerts.settle(["r"], [alert], [], "nobody")
        cron = Cron(name="nightly", cron="0 3 * * *", task=order(echo.name, {"word": SECRET}))
        await operations.put_schedule(ANN, cron)
        scheduled = app.handle((await db.schedules.run("nightly")) or told.id)
        results = {one.id: await one.result(30) for one in (told, parts, batch, joined, scheduled)}
        errors = [await one.wait(30) for one in (failed, broken)]
        await eventually(lambda: why(db, put_off.id), 30)
        lines = [row["message"] async for row in db.logs.follow(told.id)]
        streamed = [part.part async for part in told.stream()]
        await db.execute("SELECT shiftboss.fold_errors()")
        groups = await db.fetch("SELECT * FROM shiftboss.error_groups ORDER BY error_type")
    return {
        "question": question[0]["question"],
        "results": list(results.values()),
        "errors": [error.error for error in errors],
        "lines": lines,
        "streamed": streamed,
        "task": await db.tasks.get(told.id),
        "page": (await db.insights.tasks.page(TaskFilter())).items,
        "groups": groups,
        "deferred": await why(db, put_off.id),
        "schedule": (await db.schedules.all())[0]["task"]["params"],
        "audit": await db.fetch("SELECT details FROM shiftboss.audit ORDER BY at"),
        "steps": await db.steps.of(told.id),
        "alert": (await db.alerts.firing())[0]["message"],
        "alerted": await db.fetch("SELECT params FROM tasks WHERE params ? 'alert'"),
        "cancelled": (await db.tasks.get(dropped.id) or {})["error_message"],
        "ids": [told.id, failed.id],
    }


async def why(db: Database, id: Any) -> str:
    row = await db.tasks.get(id)
    return row["wait_reason"] if row and row["status"] == "Queued" and row["wait_reason"] else ""


async def test_nothing_is_in_clear_text_and_everything_is_read_back(
    db: Database, eventually: Callable[..., Any]
) -> None:
    found = await _everything(db, eventually)
    answers = {"step": SECRET, "event": SECRET, "answer": SECRET, "child": SECRET}
    assert found["results"] == [answers, SECRET, SECRET, "+".join([SECRET] * 3), SECRET]
    assert found["errors"][0].startswith(f"ValueError: no {SECRET}\nat all\n\nTraceback")
    assert found["errors"][1].startswith(f"RuntimeError: {SECRET}!")
    assert found["question"] == f"What of {SECRET}?"
    assert found["streamed"][0] == found["streamed"][-1] == {"part": SECRET}
    assert f"logged {SECRET}" in found["lines"]
    assert found["task"]["params"] == {"word": SECRET}
    assert found["task"]["progress_message"] == f"at {SECRET}" or found["task"]["progress_message"] is None
    assert f'"word":"{SECRET}"' in str([row["params_preview"].replace(" ", "") for row in found["page"]])
    assert [row["error_type"] for row in found["groups"]] == ["RuntimeError", "ValueError"]
    assert found["groups"][1]["message"] == f"ValueError: no {SECRET}\nat all"
    assert found["groups"][1]["place"] == "app/secret_tasks.py in fail"
    assert found["deferred"] == f"waits for {SECRET}"
    assert found["schedule"] == {"word": SECRET}
    assert (found["alert"], found["cancelled"]) == (f"it says {SECRET}", f"no {SECRET}")
    assert SECRET in str(found["alerted"])
    assert str(found["audit"]).count(SECRET) >= 3
    assert SECRET in str(found["steps"])
    assert "$enc" not in str(found)
    text = dump(db.url)
    assert text.count(SECRET) == 0, [line[:300] for line in text.splitlines() if SECRET in line]
    assert text.count("$enc") > 20


async def test_reports_kept_on_disk_are_sealed(
    db: Database, start_worker: StartWorker, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    handlers, go = Handlers(), asyncio.Event()

    @handlers.task("good")
    async def good() -> str:
        await go.wait()
        return SECRET

    @handlers.task("bad")
    async def bad() -> None:
        await go.wait()
        raise ValueError(SECRET)

    made = await db.tasks.enqueue([NewTask(task_type=name, max_attempts=1) for name in ("good", "bad")])
    async with start_worker(handlers, spool_dir=tmp_path, lease_seconds=60) as worker:
        await eventually(lambda: len(worker.current) == 2)
        async with outage(db):
            go.set()
            kept = await eventually(lambda: [p for p in tmp_path.rglob("*.reports") if p.stat().st_size], 30)
            text = kept[0].read_text()
            assert "$enc" in text
            assert SECRET not in text
        results = await eventually(lambda: _ended(db, [one.id for one in made]), 30)
    assert results[0].result == SECRET
    assert str(results[1].error).startswith(f"ValueError: {SECRET}\n\nTraceback")


async def _ended(db: Database, ids: list[Any]) -> Any:
    try:
        results = {one.id: one for one in await db.tasks.watch(ids)}
    except DatabaseUnavailable:  # connections that the outage cut are noticed one by one
        return None
    return [results[id] for id in ids] if all(one.done for one in results.values()) else None


async def test_a_process_without_the_key_reads_nothing_and_spoils_nothing(
    db: Database,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = current()
    async with app:
        async with app.worker():
            done, failed = await echo.enqueue(SECRET), await fail.enqueue(SECRET)
            await done.result(30)
            await failed.wait(30)
        waiting = await echo.enqueue(SECRET)
        with keys():
            with pytest.raises(KeyMissing, match=old.names[0]):
                await done.result(5)
            with pytest.raises(TaskFailed, match="ValueError"):
                await failed.result(5)
            async with app.worker():
                reason = await eventually(lambda: why(db, waiting.id), 30)
            assert old.names[0] in reason
            for args in (["tasks", "show", str(failed.id)], ["tasks", "list"], ["encryption", "status"]):
                assert await asyncio.to_thread(main, args) == 0
            out = capsys.readouterr().out
            assert "(encrypted)" in out
            assert "missing" in out
            assert SECRET not in out
            assert "$enc" not in out
        await db.execute("UPDATE tasks SET run_at = NULL WHERE id = %s", [waiting.id])
        async with app.worker():
            assert await waiting.result(30) == SECRET


async def test_a_new_key_in_front_and_the_old_one_behind(
    db: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = current().names[0]
    async with app:
        first = await echo.options(dedup_key="one").enqueue(SECRET)
        with keys(new_key(), Settings.load().encryption.keys[0]):
            same = await echo.options(dedup_key="one").enqueue(SECRET)
            assert same.id == first.id
            second = await echo.enqueue("after")
            async with app.worker():
                assert [await one.result(30) for one in (first, second)] == [SECRET, "after"]
            new = current().names[0]
            assert await asyncio.to_thread(main, ["encryption", "status", "--json"]) == 0
    told = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    row = {"key": old, "use": "decrypts", "values": 1, "tables": {"tasks": 1}}
    assert told[old] == row, "its result is of the new key"
    row = {"key": new, "use": "encrypts and decrypts", "values": 3, "tables": {"tasks": 3}}
    assert told[new] == row


async def test_the_kit_and_values_from_before_there_was_a_key(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Kit.open(app, url=database_url) as kit:
        with keys():
            plain = await echo.enqueue("plain")
        sealed = await echo.enqueue(SECRET)
        await kit.drain()
        assert [await one.result(5) for one in (plain, sealed)] == ["plain", SECRET]


def test_the_keys_are_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    key = os.environ[VARIABLE]
    assert main(["config"]) == 0
    assert key not in capsys.readouterr().out
    assert key not in repr(Settings.load())
    os.environ[VARIABLE] = f"{key} short"  # the fixture restores what was there before
    assert main(["status"]) == 2
    said = capsys.readouterr()
    assert "32 bytes" in said.err
    assert key not in said.err + said.out
