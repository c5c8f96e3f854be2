"""Every SQL table, view and function, from their comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from manual.markdown import sentence
from manual.sqltexts import FIELDS, FOLDERS, OFFERED, TEXTS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "shiftboss"
DEFINED = re.compile(
    r"^((?:--[^\n]*\n)*)(?:DROP [^\n]*\n)*CREATE (?:OR REPLACE )?(FUNCTION|PROCEDURE|VIEW) ([\w.]+)"
    r"(.*?)(?=\bAS\b\s|\bLANGUAGE\b|\Z)",
    re.MULTILINE | re.DOTALL,
)
#: The columns of each view: tests/docs/test_views.py compares them with a database.
COLUMNS = json.loads((Path(__file__).parent / "views.json").read_text(encoding="utf-8"))
COMMENT = re.compile(r"shiftboss\.describe\('([\w.]+)',((?:\s*'(?:[^']|'')*')+)\)")
RECORD = re.compile(r"jsonb_to_record\(o\.task\) AS t \((.*?)\)\n", re.DOTALL)


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
    def offered(self) -> bool:
        """Whether it is meant for SQL clients; the processes of Shiftboss call the others."""
        return self.name.startswith("public.") or self.name in OFFERED

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


def _fields() -> list[str]:
    """Return the table of the fields that `shiftboss.enqueue` takes, with the types of its definition."""
    source = (SOURCE / "sql" / "functions" / "10_enqueue.sql").read_text(encoding="utf-8")
    record = RECORD.search(source)
    assert record is not None
    types = dict(one.split(maxsplit=1) for one in " ".join(record[1].split()).split(", "))
    types |= dict.fromkeys(("dedup_for", "debounce", "debounce_max"), "interval")
    assert types.keys() == FIELDS.keys(), types.keys() ^ FIELDS.keys()
    rows = [f"| `{name}` | {types[name]} | {about} |" for name, about in FIELDS.items()]
    return [
        "## Fields of a task",
        "",
        "Each object that `shiftboss.enqueue` takes may have these fields. Only `task_type` is required.",
        "",
        "| field | type | meaning |",
        "|---|---|---|",
        *rows,
        "",
    ]


def text() -> str:
    lines: list[str] = _fields()
    for title, folder in FOLDERS.items():
        files = sorted((SOURCE / folder).glob("views/*.sql")) + sorted(
            (SOURCE / folder).glob("functions/*.sql")
        )
        found = list({one.name: one for path in files for one in _defined(path)}.values())
        comments = _comments(folder)
        for one in found:
            one.about = comments.get(one.name, one.about)
        lines += [f"## {title}", "", *_tables(comments)]
        lines += _family("Views", [one for one in found if one.kind == "view"])
        functions = [one for one in found if one.kind != "view" and not one.internal]
        lines += _family("Functions for your own code", [one for one in functions if one.offered])
        lines += _family("Functions of Shiftboss's processes", [one for one in functions if not one.offered])
        hidden = sorted(f"`{one.name}`" for one in found if one.internal and one.kind != "view")
        lines += [f"Internal, without a promise: {', '.join(hidden)}.", ""] if hidden else []
    return "\n".join(lines)


def _comments(folder: str) -> dict[str, str]:
    """The comments of tables and views, from the file that sets them."""
    files = (SOURCE / folder).glob("views/*comments.sql")
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    return {
        name: "".join(re.findall(r"'((?:[^']|'')*)'", text)).replace("''", "'")
        for name, text in COMMENT.findall(source)
    }


def _tables(comments: dict[str, str]) -> list[str]:
    rows = [f"| `{name}` | {_plain(about)} |" for name, about in comments.items() if name not in COLUMNS]
    return ["### Tables", "", "| table | contents |", "|---|---|", *rows, ""] if rows else []


def _plain(about: str) -> str:
    return sentence(" ".join(about.split())).replace("<", "&lt;").replace("*", "\\*")


def _defined(path: Path) -> Iterator[Defined]:
    for found in DEFINED.finditer(path.read_text(encoding="utf-8")):
        yield Defined(found)


def _family(title: str, found: list[Defined]) -> list[str]:
    lines = [f"### {title}", ""] if found else []
    for one in sorted(found, key=lambda one: one.name):
        lines += [f"#### {one.name}", ""]
        lines += ["```sql", one.signature, "```", ""] if one.kind != "view" else []
        lines += [_plain(one.about), ""] if one.about else []
        lines += [f"Columns: {COLUMNS[one.name]}.", ""] if one.kind == "view" else []
    return lines
