"""What a type checker makes of the public API: it must see arguments and results through decorators and handles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAMPLE = """
from typing import assert_type
from shiftboss import App, Context, Handle
from shiftboss.app import AsyncTask, Call, Group, PlainTask

app = App("sample")

@app.task(queue="mail", max_attempts=3)
async def greet(name: str, times: int = 1) -> str:
    return name * times

@app.task()
async def long(ctx: Context, pages: int) -> dict[str, int]:
    ctx.progress(50)
    return {"pages": pages}

@app.task(mode="process")
def square(n: int) -> int:
    return n * n

@app.cron("*/5 * * * *")
async def tidy(ctx: Context) -> None: ...

async def use() -> None:
    handle = await greet.enqueue("a", times=2)
    assert_type(handle, Handle[str])
    assert_type(await handle.result(timeout=1), str)
    assert_type(await (await long.enqueue(pages=3)).result(), dict[str, int])
    assert_type(await long(3), dict[str, int])
    assert_type(square(3), int)
    assert_type(greet.call("a"), Call[str])
    assert_type(await app.enqueue(greet.call("a")), Handle[str])
    assert_type(await square.map([1, 2]), Group[int])
    assert_type(await (await square.map([1, 2])).results(), list[int])
    assert_type(await greet.options(priority=10).enqueue("a"), Handle[str])
    assert_type(app.sync.enqueue(square.call(2)).result(), int)
    one: AsyncTask[[], None] = tidy
    _ = one

async def wrong() -> None:
    await greet.enqueue(1)  # E: arg-type
    await greet.enqueue("a", tims=1)  # E: call-arg
    await greet.enqueue()  # E: call-arg
    await long.enqueue("x")  # E: arg-type
    square("x")  # E: arg-type
    greet.options(prority=1)  # E: call-arg
    number: int = await (await greet.enqueue("a")).result()  # E: assignment
    print(number)
"""


def test_mypy_understands_it(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\npython_version = 3.11\n")
    source = Path(__file__).resolve().parents[2] / "src"
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(config),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    done = subprocess.run(
        [*command, "--follow-imports=silent", "--no-error-summary", str(sample)],
        capture_output=True,
        text=True,
        env={"MYPYPATH": str(source), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    found = {
        (int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]"))
        for line in done.stdout.splitlines()
        if ": error:" in line
    }
    wanted = {
        (number, line.partition("# E: ")[2])
        for number, line in enumerate(SAMPLE.splitlines(), 1)
        if "# E: " in line
    }
    assert found == wanted, done.stdout + done.stderr
