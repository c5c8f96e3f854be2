"""Hook of mkdocs: puts pages into the navigation that nobody listed there."""

from __future__ import annotations

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
    """Add every page of these folders that is not in the navigation yet, behind the others."""
    docs = Path(config.docs_dir)
    for section in config.nav:
        for title, pages in section.items() if isinstance(section, dict) else ():
            if title in FOLDERS:
                found = sorted(
                    path.relative_to(docs).as_posix() for path in (docs / FOLDERS[title]).glob("*.md")
                )
                listed = [page if isinstance(page, str) else next(iter(page.values())) for page in pages]
                pages += [path for path in found if path not in listed]
    return config
