"""Files to raw records: JSON Lines, CSV, folders of text and Markdown. A bad line costs only itself."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import yaml

from shiftboss.extensions.journal.parsing import Parsed, parse
from shiftboss.model.errors import UsageError

PROSE = (".txt", ".md", ".markdown")
DATE_IN_NAME = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})")
FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why one line, or one file, was not imported."""

    path: str
    line: int
    message: str
    hint: str | None = None


def read(paths: Iterable[Path], *, user: str | None = None) -> Iterator[Parsed | Problem]:
    """Every entry of every file, and a problem for each that cannot be one."""
    # All of them first: a wrong path is told before anything is read.
    for path, records in [source for given in paths for source in _sources(given)]:
        for line, record in records:
            yield _parsed(path, line, record, user)


def _parsed(path: Path, line: int, record: dict[str, Any] | Problem, user: str | None) -> Parsed | Problem:
    if isinstance(record, Problem):
        return record
    try:
        return parse(record, user=user)
    except UsageError as error:
        return Problem(str(path), line, error.message, error.hint)


Record = tuple[int, dict[str, Any] | Problem]


def _sources(path: Path) -> list[tuple[Path, Iterator[Record]]]:
    if path.is_dir():
        return [(file, _one_of_many(file)) for file in _prose_in(path)]
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(READERS)
        raise UsageError(f"cannot import {path}: unknown kind of file", hint=f"a folder, or one of {known}")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    return [(path, reader(path))]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text", hint="convert it, for example with iconv") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _json_lines(path: Path) -> Iterator[Record]:
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            yield number, Problem(str(path), number, f"not JSON: {error}")
            continue
        ok = isinstance(record, dict)
        yield number, record if ok else Problem(str(path), number, "not a JSON object")


def _csv(path: Path) -> Iterator[Record]:
    reader = csv.DictReader(io.StringIO(_text(path)), restkey="", strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield reader.line_num, Problem(str(path), reader.line_num, f"not CSV: {error}")
            continue
        if row is None:
            return
        if "" in row:
            message = f"more than the {len(reader.fieldnames or ())} columns of the header"
            yield reader.line_num, Problem(str(path), reader.line_num, message)
        else:
            yield reader.line_num, {name: value for name, value in row.items() if value}


def _prose_in(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in PROSE and file.is_file())
    if not files:
        raise UsageError(f"no text in {folder}", hint=f"looked for {', '.join(PROSE)}")
    return files


def _one_of_many(path: Path) -> Iterator[Record]:
    """A file of a folder that cannot be read costs only itself."""
    try:
        yield from _prose(path)
    except UsageError as error:
        yield 1, Problem(str(path), 1, error.message, error.hint)


def _prose(path: Path) -> Iterator[Record]:
    """One file, one entry: YAML front matter if there is any, dated by it, the name or the file."""
    text = _text(path)
    head = FRONT_MATTER.match(text)
    try:
        fields = yaml.safe_load(head[1]) if head else {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none is a ValueError
        yield 1, Problem(str(path), 1, f"the front matter is not YAML: {' '.join(str(error).split())}")
        return
    if not isinstance(fields, dict):
        yield 1, Problem(str(path), 1, "the front matter is not a mapping")
        return
    fields = {str(name): _plain(value) for name, value in fields.items()}
    yield 1, {"id": path.stem, "date": _date(path), "text": text[head.end() :] if head else text} | fields


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def _date(path: Path) -> str:
    named = DATE_IN_NAME.search(path.stem)
    if named:
        return "-".join(named.groups())
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()


READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    **dict.fromkeys(PROSE, _prose),
}
