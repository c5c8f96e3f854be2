"""`shiftboss logs`: what a task has logged, and what it logs while one looks."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from shiftboss import App, Context
from shiftboss.cli import main

app = App("logged")
log = logging.getLogger("shop")


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
