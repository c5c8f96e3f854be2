"""`shiftboss logs`: stored lines of a task, and new ones while it runs."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from shiftboss import App, Context
from shiftboss.cli import main
from shiftboss.lifecycle.logs import configure_logs, configured_level

app = App("logged")
log = logging.getLogger("shop")


@app.task()
async def silent(ctx: Context) -> None:
    log.info("below the level of stderr")


@app.task()
async def pack(ctx: Context) -> None:
    log.warning("packing")
    await ctx.step("wrap", lambda: log.error("no paper"))


def test_a_task_s_log(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)

    async def work() -> str:
        async with app, app.worker():
            handle = await pack.enqueue()
            await handle.result(timeout=60)
            return str(handle.id)

    id = asyncio.run(work())

    def said(*args: str) -> str:
        capsys.readouterr()
        assert main(["logs", id, *args]) == 0
        return capsys.readouterr().out

    first, second = said().splitlines()
    assert first.endswith("  warning  [1]  shop  packing")
    assert second.endswith("  error  [1 wrap#1]  shop  no paper")
    assert said("--follow") == f"{first}\n{second}\n"
    assert said("--log-level", "error") == f"{second}\n"
    assert [json.loads(line)["message"] for line in said("--json").splitlines()] == ["packing", "no paper"]


def test_info_lines_are_kept_whatever_the_console_shows(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    root = logging.getLogger()
    before, handlers = root.level, list(root.handlers)
    configure_logs("warning")
    try:
        assert configured_level() == "warning"
        id = asyncio.run(_run_silent())
    finally:
        root.handlers, root.level = handlers, before
    assert "below the level" not in capsys.readouterr().err
    assert main(["logs", id]) == 0
    assert capsys.readouterr().out.endswith("  info  [1]  shop  below the level of stderr\n")
    assert main(["logs", id, "--log-level", "error"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"note: task {id} has logged nothing at level error or above\n")


async def _run_silent() -> str:
    async with app, app.worker():
        handle = await silent.enqueue()
        await handle.result(timeout=60)
        return str(handle.id)
