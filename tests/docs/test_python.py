"""The Python blocks of the manual: each is valid, and every page whose blocks form a program is run."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import fences

FRAMEWORKS = "run by tests/examples/test_frameworks.py"
DOCUMENTS = "run by tests/docs/test_documents.py"
PARTS = "parts of a program that is not shown"

#: Why the blocks of a page are not run here. Their syntax is checked.
NOT_RUN = {
    "README.md": DOCUMENTS,
    "docs/index.md": DOCUMENTS,
    "docs/tutorial.md": DOCUMENTS,
    "docs/how-to/durable-work.md": DOCUMENTS,
    "docs/how-to/ai.md": "run by tests/extensions/ai/test_guide.py",
    "docs/how-to/dashboard.md": PARTS,
    "docs/how-to/django.md": FRAMEWORKS,
    "docs/how-to/fastapi.md": FRAMEWORKS,
    "docs/how-to/flask.md": FRAMEWORKS,
    "docs/how-to/sqlalchemy.md": FRAMEWORKS,
    "docs/how-to/enqueue-in-a-transaction.md": PARTS,
    "docs/how-to/follow-a-task.md": PARTS,
    "docs/how-to/ray.md": "needs Ray",
    "docs/how-to/supervise.md": PARTS,
    "docs/how-to/test-your-tasks.md": "tests of an example project; tests/app/test_testing.py has such tests",
    "docs/how-to/vectorizers.md": PARTS,
}
PAGES = sorted({page for page, language, _ in fences() if language == "python"})
RUN = """
import ast, asyncio, inspect, sys

code = compile(sys.stdin.read(), "the page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
result = eval(code, {"__name__": "page"})
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
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input="\n\n".join(code_of(page)),
        cwd=tmp_path,
        env=os.environ
        | {"SHIFTBOSS_DATABASE_URL": database_url, "SHIFTBOSS_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_reason_is_out_of_date() -> None:
    assert NOT_RUN.keys() <= set(PAGES)
