"""Reads raw records from JSON Lines, CSV, text and Markdown files. Invalid lines are skipped and reported."""

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
    """The reason why a line or a file was not imported."""

    path: str
    line: int
    message: str
    hint: str | None = None


def read(paths: Iterable[Path], *, user: str | None = None) -> Iterator[Parsed | Problem]:
    """Yield the entries of all files, and a problem for each invalid one."""
    # Check all paths before reading anything.
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
        raise UsageError(
            f"cannot import {path}: unknown kind of file", hint=f"use a folder, or one of {known}"
        )
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="check the path")
    return [(path, reader(path))]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text", hint="convert it, for example with iconv") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error


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
        raise UsageError(f"no text files in {folder}", hint=f"the folder needs files with {', '.join(PROSE)}")
    return files


def _one_of_many(path: Path) -> Iterator[Record]:
    """Read a file of a folder, and yield a problem if that fails."""
    try:
        yield from _prose(path)
    except UsageError as error:
        yield 1, Problem(str(path), 1, error.message, error.hint)


def _prose(path: Path) -> Iterator[Record]:
    """Read a file as one entry. Its date is in the YAML front matter, the file name or the file system."""
    text = _text(path)
    head = FRONT_MATTER.match(text)
    try:
        fields = yaml.safe_load(head[1]) if head else {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an invalid date
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
