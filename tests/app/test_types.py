"""Type checkers see arguments and results of the public API through decorators and handles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SAMPLE = """
from typing import assert_type
from shiftboss import App, Batch, Context, Handle, group
from shiftboss.app import AsyncTask, Call, Calls, Group
from shiftboss.extensions.ai import Client, SyncClient, ai_of

app = App("sample")

@app.task(queue="mail", max_attempts=3)
async def greet(name: str, times: int = 1) -> str:
    return name * times

@app.task()
async def long(ctx: Context, pages: int) -> dict[str, int]:
    ctx.progress(50)
    return {"pages": pages}

@app.task()
async def greet_many(times: int, name: str = "you") -> list[str]:
    return [name] * times

@app.task(mode="process")
def square(n: int) -> int:
    return n * n

@app.task()
def total(numbers: list[int], start: int = 0) -> float:
    return float(sum(numbers, start))

@app.task(batch=Batch(max_size=10, max_wait=0.1))
async def embed(texts: list[str]) -> list[list[float] | Exception]:
    return [[1.0] for _ in texts]

@app.task(batch=10, queue="plain")
def label(items: list[int]) -> list[str]:
    return [str(item) for item in items]

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
    assert_type(square.call(2).then(greet_many), Call[list[str]])
    assert_type(square.call(2).then(greet_many, name="a"), Call[list[str]])
    assert_type(await (await app.enqueue(square.call(2).then(greet_many))).result(), list[str])
    squares = group(square.call(1), square.call(2))
    assert_type(squares, Calls[int])
    assert_type(squares.then(total, start=3), Call[float])
    assert_type(squares.ended(greet.call("x")), Call[str])
    assert_type(await app.enqueue(squares), Group[int])
    assert_type(await (await app.enqueue(squares)).results(), list[int])
    assert_type(app.sync.enqueue(squares)[0].result(), int)
    assert_type(await embed.enqueue("a"), Handle[list[float]])
    assert_type(await embed("a"), list[float])
    assert_type(await (await label.map([1])).results(), list[str])
    assert_type(ai_of(app), Client)
    assert_type(ai_of(app.sync), SyncClient)
    one: AsyncTask[[], None] = tidy
    _ = one

async def wrong() -> None:
    await greet.enqueue(1)  # E: arg-type
    await greet.enqueue("a", tims=1)  # E: call-arg
    await greet.enqueue()  # E: call-arg
    await long.enqueue("x")  # E: arg-type
    square("x")  # E: arg-type
    greet.options(prority=1)  # E: call-arg
    greet.call("a").then(square)  # E: arg-type
    square.call(2).then(greet_many, name=3)  # E: arg-type
    group(greet.call("a")).then(total)  # E: arg-type
    await embed.enqueue(3)  # E: arg-type
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
    wanted = {(number, line.partition("# E: ")[2]) for number, line in errors()}
    assert found == wanted, done.stdout + done.stderr


def test_pyright_understands_it(tmp_path: Path) -> None:
    """With the engine and the node of wheels, which need no download: `basedpyright` by pyright's strict rules."""
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    source = Path(__file__).resolve().parents[2] / "src"
    config = {"typeCheckingMode": "strict", "extraPaths": [str(source)], "include": ["sample.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)["generalDiagnostics"]
    found = {one["range"]["start"]["line"] + 1 for one in told if one["severity"] == "error"}
    assert found == {number for number, _ in errors()}, done.stdout


def errors() -> list[tuple[int, str]]:
    """The lines of the sample that a checker must complain about."""
    return [(number, line) for number, line in enumerate(SAMPLE.splitlines(), 1) if "# E: " in line]


def test_every_public_name_can_be_imported() -> None:
    import shiftboss

    assert {"WaitTimeout", "TaskFailed", "TaskCancelled", "ResultTimeout", "StepTerms"} <= set(
        shiftboss.__all__
    )
    assert set(shiftboss.__all__) <= set(dir(shiftboss))
    for name in shiftboss.__all__:
        assert getattr(shiftboss, name) is not None
