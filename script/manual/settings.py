"""Every setting with its description, default and an example."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from pydantic import BaseModel

from manual.examples import BY_NAME, EXAMPLES
from manual.markdown import cell, code, sentence, table
from shiftboss.model.section import Section
from shiftboss.model.settings import Settings


def text() -> str:
    complete = Settings.complete()
    sections = [(name, kind) for name, kind in _fields(complete) if _is_section(kind)]
    top = [name for name, kind in _fields(complete) if not _is_section(kind)]
    lines = ["## Top level", "", *_table(complete, "", top)]
    for name, kind in sections:
        lines += _section(name, kind)
    return "\n".join(lines)


def _section(name: str, kind: type[BaseModel]) -> list[str]:
    inner = [(field, one) for field, one in _fields(kind) if _is_section(one)]
    plain = [field for field, one in _fields(kind) if not _is_section(one)]
    about = inspect.cleandoc(vars(kind).get("__doc__") or "")
    lines = [f"## [{name}]", "", *([about, ""] if about else []), *_table(kind, f"{name}.", plain)]
    for field, one in inner:
        lines += _section(f"{name}.{field}", one)
    return lines


def _table(kind: type[BaseModel], prefix: str, names: list[str]) -> list[str]:
    rows = [_row(kind, prefix, name) for name in names]
    return table(("key and variable", "default", "example", "description"), rows) if rows else []


def _row(kind: type[BaseModel], prefix: str, name: str) -> tuple[str, str, str, str]:
    key = prefix + name
    field = kind.model_fields[name]
    variable = "SHIFTBOSS_" + key.replace(".", "_").upper()
    default = field.get_default(call_default_factory=True)
    shown = "" if default in (None, (), {}, []) else code(_toml(default))
    example = EXAMPLES.get(key) or (_toml(default) if shown else BY_NAME.get(name, '"..."'))
    described = field.description or described_in(kind).get(name) or ""
    if not described:
        raise SystemExit(f"{key} needs a description: a string below the field of {kind.__name__}")
    return f"{code(key)}<br>{code(variable)}", shown, code(f"{name} = {example}"), cell(sentence(described))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return f'"{value}"' if not isinstance(value, int | float) else f"{value:g}" if value < 1e6 else str(value)


def _fields(kind: type[BaseModel]) -> list[tuple[str, Any]]:
    return [(name, field.annotation) for name, field in kind.model_fields.items()]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def described_in(kind: type) -> dict[str, str]:
    """The string below each field, in a class and its bases."""
    found: dict[str, str] = {}
    for one in reversed([base for base in kind.__mro__ if base.__module__.startswith("shiftboss")]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        except OSError:  # made by create_model
            continue
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = words
    return found
