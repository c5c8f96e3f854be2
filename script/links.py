"""Finds dead links in the documents: files and headings that are not there. The web is not tried."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
ELSEWHERE = ("http://", "https://", "mailto:")


def documents() -> list[Path]:
    folders = (".", "docs", "docs/*", "examples", "examples/*", "bench")
    return [path for folder in folders for path in sorted(ROOT.glob(f"{folder}/*.md"))]


def anchors(document: Path) -> set[str]:
    """The names a heading can be linked by, made as the usual renderers make them."""
    headings = HEADING.findall(FENCE.sub("", document.read_text(encoding="utf-8")))
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.strip().replace(" ", "-") for word in words}


def dead_links(document: Path) -> list[str]:
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    inside = [link for link in LINK.findall(text) if not link.startswith(ELSEWHERE)]
    return [link for link in inside if not alive(document, link)]


def alive(document: Path, link: str) -> bool:
    name, _, anchor = unquote(link).partition("#")
    target = (document.parent / name).resolve() if name else document
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def main() -> int:
    dead = [f"{file.relative_to(ROOT)}: {link}" for file in documents() for link in dead_links(file)]
    print("\n".join(dead) or f"{len(documents())} documents, no dead links")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
