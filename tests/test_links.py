"""The check for dead links reports dead links only, and the site does not build with one."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKS = runpy.run_path(str(ROOT / "script" / "links.py"))


@pytest.mark.parametrize(
    ("link", "dead"),
    [
        ("other.md", False),
        ("other.md#two-words", False),
        ("other.md#two-words-1", False),
        ("other.md#by-hand", False),
        ("#here-with-code", False),
        ("https://example.org/none", False),
        ("missing.md", True),
        ("other.md#three-words", True),
        ("other.md#two-words-2", True),
        ("#nowhere", True),
        ("#not-a-heading", True),
    ],
)
@pytest.mark.parametrize(
    "text",
    ["[text]({})", "[a picture\n![of it](other.md)]({})", "[text][1]\n\n[1]: {}", '<a href="{}">text</a>'],
)
def test_links(tmp_path: Path, text: str, link: str, dead: bool) -> None:
    (tmp_path / "other.md").write_text('## Two words\n<a id="by-hand"></a>\n\n## Two words\n')
    document = tmp_path / "document.md"
    code = "```\n# Not a heading\n[code](not/a/link.md)\n```\nNor is `[this](one.md)`.\n"
    document.write_text(f"# Here, with `code`\n{text.format(link)}\n\n{code}")
    assert LINKS["dead_links"](document) == ([link] if dead else [])


def test_every_document_is_checked() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in LINKS["documents"]()}
    others = {f"{name}/README.md" for name in ("bench", "examples", "examples/agent", "examples/extension")}
    assert names >= others | {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    assert names >= {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}


@pytest.mark.parametrize("link", ["missing.md", "install.md#nowhere", "../nothing.md"])
def test_the_site_does_not_build_with_a_dead_link(link: str, tmp_path: Path) -> None:
    for name in ("docs/index.md", "docs/install.md", "script/pages.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    settings = (ROOT / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(settings.partition("\nnav:")[0] + "\nnav: [index.md, install.md]\n")
    for page in ("index", "install"):
        (tmp_path / "docs" / f"{page}.md").write_text(f"# {page}\n")

    def build() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
        env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert build().returncode == 0
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n[dead]({link})\n")
    done = build()
    assert (done.returncode, link.partition("#")[0] in done.stderr) == (1, True), done.stderr
