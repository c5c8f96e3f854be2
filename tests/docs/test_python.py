"""The Python blocks of the manual: each is valid, and every page whose blocks form a program is run."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.docs.blocks import fences
from tests.docs.programs import AFTER, BEFORE, DURABLE

FRAMEWORKS = "run by tests/examples/test_frameworks.py"
DOCUMENTS = "run by tests/docs/test_documents.py"

#: Why the blocks of a page are not run as one program. Their syntax is checked.
NOT_RUN = {
    "README.md": DOCUMENTS,
    "docs/index.md": DOCUMENTS,
    "docs/tutorial.md": DOCUMENTS,
    "docs/how-to/durable-work.md": "the first is run by tests/docs/test_documents.py, the others below",
    "docs/how-to/ai.md": "run by tests/extensions/ai/test_guide.py",
    "docs/how-to/django.md": FRAMEWORKS,
    "docs/how-to/fastapi.md": FRAMEWORKS,
    "docs/how-to/flask.md": FRAMEWORKS,
    "docs/how-to/sqlalchemy.md": FRAMEWORKS,
    "docs/how-to/ray.md": "needs Ray, which has no package for some versions of Python",
    "docs/how-to/test-your-tasks.md": "run below, by pytest",
}
PAGES = sorted({page for page, language, _ in fences() if language == "python"})
RUN = """
import ast, asyncio, inspect, sys

code = compile(sys.stdin.read(), "the page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
result = eval(code, {"__name__": "page", "__file__": "page.py"})
if inspect.iscoroutine(result):
    asyncio.run(result)
"""


def code_of(page: str) -> list[str]:
    return [code for where, language, code in fences() if (where, language) == (page, "python")]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_valid(page: str) -> None:
    for code in code_of(page):
        compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in NOT_RUN])
def test_the_blocks_of_a_page_run(page: str, database_url: str, tmp_path: Path) -> None:
    run("\n\n".join([BEFORE.get(page, ""), *code_of(page), AFTER.get(page, "")]), database_url, tmp_path)


def test_the_lines_of_durable_work_run(database_url: str, tmp_path: Path) -> None:
    _, question, stream, agents = code_of("docs/how-to/durable-work.md")
    agents = agents.replace('"openai:gpt-5"', 'TestModel(custom_output_text="Oslo")')  # costs nothing
    lines = {"question": indent(question, " " * 4), "stream": indent(stream, " " * 4), "agents": agents}
    run(DURABLE.format(**lines), database_url, tmp_path)


def run(program: str, database_url: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=program,
        cwd=folder,
        env=os.environ
        | {"SHIFTBOSS_DATABASE_URL": database_url, "SHIFTBOSS_DATA_DIR": str(folder / "data")}
        | {"OPENAI_API_KEY": "k"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


TASKS = """
from shiftboss import App, Context

app = App("shop")


@app.task()
async def greet(name: str) -> str:
    return f"Hello, {name}"


@app.task()
async def report(pages: int) -> dict[str, int]:
    return {"pages": pages}


@app.task()
async def describe(ctx: Context, product: str) -> str:
    return (await ctx.ai.complete(f"Describe {product}")).text
"""


@pytest.mark.timeout(180)
def test_the_tests_of_a_page_pass(tmp_path: Path) -> None:
    page = "docs/how-to/test-your-tasks.md"
    settings = [code for where, language, code in fences() if (where, language) == (page, "toml")]
    (tmp_path / "pyproject.toml").write_text(settings[0])
    (tmp_path / "tasks.py").write_text(TASKS)
    for number, code in enumerate(code_of(page)):
        (tmp_path / f"test_{number}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path,
        env=os.environ | {"SHIFTBOSS_DATA_DIR": str(tmp_path / "data"), "OPENAI_API_KEY": "k"},
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_no_reason_is_out_of_date() -> None:
    assert NOT_RUN.keys() <= set(PAGES)
    assert BEFORE.keys() | AFTER.keys() <= set(PAGES) - NOT_RUN.keys()
