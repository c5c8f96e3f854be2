"""The description of the HTTP API, rendered from its OpenAPI document without assets of other hosts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shiftboss.extensions.admin.page import answers
from shiftboss.extensions.admin.page.shell import Shell

router = APIRouter(include_in_schema=False)


@router.get("/api/docs")
async def show(request: Request) -> Response:
    shell: Shell = request.app.state.shell
    document = request.app.openapi()
    context = {
        "info": document["info"],
        "groups": _groups(document),
        "schemas": document.get("components", {}).get("schemas", {}),
    }
    text = shell.renderer.plain("manual.html", theme=answers.theme(request), **context)
    return answers.page(request, text)


def _groups(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the operations grouped by tag."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            tag = (one.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append(_operation(method, path, one))
    return dict(sorted(groups.items()))


def _operation(method: str, path: str, one: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": method.upper(),
        "path": path,
        "about": one.get("description") or one.get("summary", ""),
        "parameters": [_parameter(given) for given in one.get("parameters", ())],
        "body": _schema(one.get("requestBody", {})),
        "answers": {code: _schema(answer) for code, answer in one["responses"].items() if code < "300"},
    }


def _parameter(given: dict[str, Any]) -> dict[str, Any]:
    schema = given.get("schema", {})
    kinds = [schema, *schema.get("anyOf", ())]
    kind = next((str(one["type"]) for one in kinds if one.get("type") not in (None, "null")), "")
    about = given.get("description", "")
    return {
        "name": given["name"],
        "in": given["in"],
        "kind": kind,
        "needed": given.get("required"),
        "about": about,
    }


def _schema(part: dict[str, Any]) -> str:
    """Return the name of the schema of a request or response body."""
    for content in part.get("content", {}).values():
        schema = content.get("schema", {})
        inner = schema.get("items", schema)
        name = inner.get("$ref", "").rpartition("/")[2] or inner.get("title") or inner.get("type", "")
        return f"list of {name}" if "items" in schema else str(name)
    return ""
