"""The check for dead links reports dead links only."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

LINKS = runpy.run_path(str(Path(__file__).resolve().parent.parent / "script" / "links.py"))


@pytest.mark.parametrize(
    ("link", "dead"),
    [
        ("other.md", False),
        ("other.md#two-words", False),
        ("#here", False),
        ("https://example.org/none", False),
        ("missing.md", True),
        ("other.md#three-words", True),
        ("#nowhere", True),
    ],
)
def test_links(tmp_path: Path, link: str, dead: bool) -> None:
    (tmp_path / "other.md").write_text("## Two words\n")
    document = tmp_path / "document.md"
    document.write_text(f"# Here\n[text]({link})\n```\n[code](not/a/link.md)\n```\n")
    assert LINKS["dead_links"](document) == ([link] if dead else [])
