"""Hook of mkdocs: adds pages to the navigation that mkdocs.yml does not list."""

from __future__ import annotations

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


def _paths(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for item in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _paths(item)
