"""Prompt templates: one file per task type, `<task_type>.j2`, beside this module."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound
from pydantic import BaseModel

from shiftboss.ai.protocol import Correction, Request
from shiftboss.model.errors import ConfigError

HERE = Path(__file__).parent
OPTIONAL: dict[str, Any] = {"context": {}, "labels": (), "history": (), "user_context": {}}


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2).decode()


@cache
def _environment() -> Environment:
    # The output is a prompt for a model, not a page for a browser: nothing to escape.
    environment = Environment(
        loader=FileSystemLoader(HERE), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        auto_reload=False, autoescape=False,  # noqa: S701
    )  # fmt: skip
    environment.filters["json"] = _json
    return environment


@cache
def schema_json(schema: type[BaseModel]) -> str:
    return orjson.dumps(schema.model_json_schema()).decode()


@cache
def fingerprint(name: str, schema: type[BaseModel]) -> str:
    """Another one for another wording of the prompt or another shape of the answer."""
    files = [HERE / f"{part}.j2" for part in ("_system", name)]
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return hashlib.sha256(orjson.dumps([*texts, schema_json(schema)])).hexdigest()


def render(name: str, **variables: Any) -> str:
    try:
        return _environment().get_template(f"{name}.j2").render(**variables).strip()
    except TemplateNotFound as error:
        known = ", ".join(sorted(path.stem for path in HERE.glob("*.j2") if not path.stem.startswith("_")))
        raise ConfigError(f"no prompt template {name!r}", hint=f"there are {known}") from error


def messages(request: Request[Any], correction: Correction | None = None) -> list[dict[str, str]]:
    """The conversation that asks `request`; a correction adds the bad answer and what was wrong with it."""
    variables = {**OPTIONAL, **request.variables, "content": request.content}
    schema: type[BaseModel] = request.schema
    asked = [
        {"role": "system", "content": render("_system", schema=schema_json(schema))},
        {"role": "user", "content": render(request.template_name, **variables)},
    ]
    if correction is None:
        return asked
    return [
        *asked,
        {"role": "assistant", "content": correction.answer},
        {"role": "user", "content": render("_correction", error=correction.error)},
    ]
