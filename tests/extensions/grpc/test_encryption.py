"""A worker without a database that has the key, and a coordinator without it that passes payloads on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiftboss import App, Context
from shiftboss.db import Database
from shiftboss.db.stream import follow
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.model.codec import new_key
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.runtime import Worker
from tests.app.test_encryption import SECRET, dump, keys

log = logging.getLogger("fed")


def made() -> App:
    app = App("sealed")

    @app.task("echo")
    async def echo(word: str) -> str:
        return word

    @app.task("talk", max_attempts=2)
    async def talk(ctx: Context, word: str) -> dict[str, Any]:
        log.warning("logged %s", word)
        ctx.progress(40, word)
        kept = await ctx.step("keep", lambda: {"step": word})
        await ctx.emit({"part": word})
        if ctx.attempt == 1:
            raise ValueError(word)
        heard = await ctx.wait_for("news", dict, timeout=60)
        return {**kept, **heard, "child": await ctx.run(echo.call(word)), "long": word * 1000}

    return app


@pytest.fixture
def _key() -> Iterator[None]:
    with keys(new_key()):
        yield


@pytest.fixture
def keyless(database_url: str, unused_port: int, tmp_path: Path) -> Any:
    """The address of a coordinator in a process of its own, without the key, and its log."""
    environ = {name: value for name, value in os.environ.items() if "ENCRYPTION" not in name}
    environ |= {"SHIFTBOSS_DATABASE_URL": database_url}
    command = [sys.executable, "-m", "shiftboss", "coordinator", "--port", str(unused_port), "--no-token"]
    with (tmp_path / "log").open("wb") as output:
        process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
        yield f"127.0.0.1:{unused_port}", tmp_path / "log"
        process.terminate()
        process.wait(30)


@pytest.mark.usefixtures("_key")
async def test_a_coordinator_without_the_key_passes_on_what_it_cannot_read(
    db: Database, keyless: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, output = keyless
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", db.url)
    app = made()
    talk = app.task_named("talk")
    names = [handler.name for handler in app.handlers]
    source = CoordinatorSource([address], CoordinatorSettings())
    member = Member(id="w1", capabilities=Capabilities(task_types=names, max_concurrent_tasks=2))
    settings = WorkerSettings(poll_seconds=0.2, beat_seconds=0.5)
    async with app, Worker(source, app.handlers, member, settings):
        handle = await talk.enqueue(word=SECRET)
        await app.send_event("news", {"event": SECRET})
        result = await handle.result(60)
        streamed = [part.part async for part in follow(db.steps, handle.id)]
        lines = [row["message"] async for row in db.logs.follow(handle.id)]
    long = SECRET * 1000
    assert result == {"step": SECRET, "event": SECRET, "child": SECRET, "long": long}
    assert streamed[-1] == {"part": SECRET}
    assert f"logged {SECRET}" in lines
    attempts = await db.tasks.attempts(handle.id)
    assert attempts[0]["error"].startswith(f"ValueError: {SECRET}\n\nTraceback")
    assert dump(db.url).count(SECRET) == 0
    assert SECRET not in output.read_text()
