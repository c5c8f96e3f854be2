"""Every SQL function and view, from the comments above their definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from manual.markdown import sentence
from manual.sqltexts import FOLDERS, TEXTS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "shiftboss"
DEFINED = re.compile(
    r"^((?:--[^\n]*\n)*)CREATE (?:OR REPLACE )?(FUNCTION|PROCEDURE|VIEW) ([\w.]+)"
    r"(.*?)(?=\bAS\b\s|\bLANGUAGE\b|\Z)",
    re.MULTILINE | re.DOTALL,
)


class Defined:
    """One function or view, as its file defines it."""

    def __init__(self, found: re.Match[str]) -> None:
        comment, kind, self.name, rest = found.groups()
        self.kind = kind.lower()
        self.about = TEXTS.get(self.name) or "\n".join(
            line.removeprefix("--").removeprefix(" ").rstrip() for line in comment.splitlines()
        )
        self.signature = " ".join(f"{self.name}{rest}".split())

    @property
    def internal(self) -> bool:
        """Whether others have no use for it: it belongs to a trigger, or nothing is said about it."""
        hidden = self.name.split(".")[-1].startswith("_") and self.name not in TEXTS
        return (
            hidden
            or not self.about
            or "RETURNS trigger" in self.signature
            or "event_trigger" in self.signature
        )


def text() -> str:
    lines: list[str] = []
    for title, folder in FOLDERS.items():
        files = sorted((SOURCE / folder).glob("views/*.sql")) + sorted(
            (SOURCE / folder).glob("functions/*.sql")
        )
        found = list({one.name: one for path in files for one in _defined(path)}.values())
        lines += [f"## {title}", "", *_family("Views", [one for one in found if one.kind == "view"])]
        lines += _family("Functions", [one for one in found if one.kind != "view" and not one.internal])
        hidden = sorted(f"`{one.name}`" for one in found if one.internal and one.kind != "view")
        lines += [f"Internal, without a promise: {', '.join(hidden)}.", ""] if hidden else []
    return "\n".join(lines)


def _defined(path: Path) -> Iterator[Defined]:
    for found in DEFINED.finditer(path.read_text(encoding="utf-8")):
        yield Defined(found)


def _family(title: str, found: list[Defined]) -> list[str]:
    lines = [f"### {title}", ""] if found else []
    for one in sorted(found, key=lambda one: one.name):
        lines += [f"#### {one.name}", ""]
        lines += ["```sql", one.signature, "```", ""] if one.kind != "view" else []
        lines += (
            [sentence(" ".join(one.about.split())).replace("<", "&lt;").replace("*", "\\*"), ""]
            if one.about
            else []
        )
    return lines
