"""Every path of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from manual.markdown import cell, code, sentence, table
from shiftboss.extensions.admin.page import manual as described
from shiftboss.extensions.admin.service import routers


def text() -> str:
    app = FastAPI()
    for router in routers():
        app.router.routes.extend(router.routes)
    document = app.openapi()
    lines: list[str] = []
    for group, operations in sorted(described._groups(document).items()):
        lines += [f"## {group.capitalize()}", ""]
        for one in sorted(operations, key=lambda one: (one["path"], one["method"])):
            lines += _operation(one)
    return "\n".join(lines)


def _operation(one: dict[str, Any]) -> list[str]:
    lines = [f"### {one['method']} {one['path']}", ""]
    about = " ".join(one["about"].split())
    lines += [sentence(about).replace("<", "&lt;"), ""] if about else []
    rows = [
        (code(given["name"]), given["in"], given["kind"], cell(sentence(str(given.get("about") or ""))))
        for given in one["parameters"]
    ]
    lines += table(("parameter", "in", "type", "meaning"), rows) if rows else []
    answers = [
        f"{status} {code(body)}" if body else status for status, body in sorted(one["answers"].items())
    ]
    words = [f"Body: {code(one['body'])}."] if one["body"] else []
    return [*lines, " ".join([*words, f"Answers: {', '.join(answers)}."]), ""]
