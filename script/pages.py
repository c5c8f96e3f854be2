"""Hooks of mkdocs: pages that mkdocs.yml does not list, and links to files that the site does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDERS = {
    "How to": "how-to",
    "Explanation": "explanation",
    "Reference": "reference",
    "Proofs": "benchmarks",
    "Decisions": "decisions",
}
OUTSIDE = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>(?:\.\./)+[^)#]*)[^)]*\)")


def on_config(config: Any) -> Any:
    """Add the other pages of these folders at the end of their section."""
    docs = Path(config.docs_dir)
    listed = set(_paths(config.nav))
    for section in config.nav:
        for title in FOLDERS.keys() & (section if isinstance(section, dict) else {}):
            found = sorted((docs / FOLDERS[title]).glob("*.md"))
            names = (path.relative_to(docs).as_posix() for path in found)
            section[title] += [name for name in names if name not in listed]
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Show a link to a file of the repository outside of docs as text, since the site does not have it."""
    folder, docs = Path(page.file.abs_src_path).parent, Path(config.docs_dir)

    def shown(link: re.Match[str]) -> str:
        target = (folder / link["target"]).resolve()
        return link["text"] if target.exists() and not target.is_relative_to(docs) else link[0]

    return OUTSIDE.sub(shown, markdown)


def _paths(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for item in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _paths(item)
