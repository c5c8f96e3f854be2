"""Reads settings from a TOML file and the environment, and records the source of each value."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftboss.model.errors import ConfigError

PREFIX = "SHIFTBOSS_"
FILE_VARIABLE = "SHIFTBOSS_CONFIG"
FLAG_MARK = "__FLAG"


@dataclass(frozen=True)
class SourcedValue:
    value: Any
    source: str


def similar(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the word that is most similar to a misspelt one, or None."""
    from difflib import get_close_matches  # only errors need it

    return next(iter(get_close_matches(word, list(words), n=1, cutoff=cutoff)), None)


def nearest(word: str, words: Iterable[str]) -> str:
    near = similar(word, words)
    return f"did you mean {near!r}?" if near else "`shiftboss config` lists all settings"


def from_environment(environ: Mapping[str, str], keys: list[str]) -> dict[str, SourcedValue]:
    """Return every key that a variable sets. A misspelt variable is an error.

    Other variables with our prefix are ignored: container platforms create them for a service named
    `shiftboss`.
    """
    names = {_variable(key): key for key in keys}
    found: dict[str, SourcedValue] = {}
    for name, text in environ.items():
        if name in names:
            source = environ.get(name + FLAG_MARK, name)
            found[names[name]] = SourcedValue(_parse(text), source)
        elif near := _misspelt(name, names):
            raise ConfigError(f"unknown variable {name}", hint=f"did you mean {near}?")
    return found


def from_file(
    environ: Mapping[str, str], folder: Path, keys: list[str], paths: Collection[str]
) -> dict[str, SourcedValue]:
    """Return every key that the file sets. An unknown key is an error, and paths are relative to the file."""
    path, table = _find(environ, folder)
    if path is None:
        return {}
    found: dict[str, SourcedValue] = {}
    for key, value in _flat(table, keys):
        if key not in keys:
            raise ConfigError(f"unknown setting {key!r} in {path}", hint=nearest(key, keys))
        if key in paths and isinstance(value, str):
            value = str(path.parent / Path(value).expanduser())
        found[key] = SourcedValue(value, str(path))
    return found


def _flat(table: Mapping[str, Any], keys: list[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys. A table that is itself the value of a setting stays whole."""
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and key not in keys:
            yield from _flat(value, keys, f"{key}.")
        else:
            yield key, value


def _misspelt(name: str, names: Iterable[str]) -> str | None:
    if not name.startswith(PREFIX) or name == FILE_VARIABLE or name.endswith(FLAG_MARK):
        return None
    return similar(name, names, cutoff=0.9)


def _variable(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()


def set_by_flag(key: str, value: str, flag: str) -> None:
    """Set a setting for this process and its children, and record the flag as its source."""
    os.environ[_variable(key)] = value
    os.environ[_variable(key) + FLAG_MARK] = flag


def _parse(text: str) -> Any:
    """Parse lists and tables, which are written as JSON. The model converts all other text."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _find(environ: Mapping[str, str], folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """Find the named file, or else the nearest shiftboss.toml or pyproject.toml with our table."""
    if named := environ.get(FILE_VARIABLE):
        path = Path(named).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"there is no settings file {path}", hint=f"correct --config or {FILE_VARIABLE}"
            )
        return path, _read(path)
    for place in (folder, *folder.parents):
        if (path := place / "shiftboss.toml").is_file():
            return path, _read(path)
        if (path := place / "pyproject.toml").is_file():
            table = _read(path).get("tool", {}).get("shiftboss")
            if table is not None:
                return path, table
    return None, {}


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
