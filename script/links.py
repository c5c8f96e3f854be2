"""Finds dead links in the documents: files and headings that do not exist. Links to the web are not tried."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
MARKDOWN = MarkdownIt().enable("table")
TARGET = re.compile(r"""\b(?:href|src)=["']([^"']+)""")
NAMED = re.compile(r"""\b(?:id|name)=["']([^"']+)""")
ELSEWHERE = ("http://", "https://", "mailto:")


def documents() -> list[Path]:
    folders = (".", "docs", "docs/*", "examples", "examples/*", "bench")
    return [path for folder in folders for path in sorted(ROOT.glob(f"{folder}/*.md"))]


def tokens(document: Path) -> Iterator[Token]:
    for token in MARKDOWN.parse(document.read_text(encoding="utf-8")):
        yield token
        yield from token.children or []


def anchors(document: Path) -> set[str]:
    """The names a heading can be linked by, made as GitHub makes them, and those given in HTML."""
    found, seen, heading = set[str](), Counter[str](), False
    for token in tokens(document):
        if token.type.startswith("html"):
            found.update(NAMED.findall(token.content))
        elif heading and token.type == "inline":
            plain = "".join(child.content for child in token.children or [])
            name = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
        heading = token.type == "heading_open"
    return found


def links(document: Path) -> Iterator[str]:
    for token in tokens(document):
        if token.type.startswith("html"):
            yield from TARGET.findall(token.content)
        elif target := token.attrGet("href") or token.attrGet("src"):
            yield str(target)


def dead_links(document: Path) -> list[str]:
    return [link for link in links(document) if not link.startswith(ELSEWHERE) and not alive(document, link)]


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
