"""Hooks of mkdocs: pages made from the code, and the guides that others put into their folders."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

FOLDERS = {"How to": "how-to", "Explanation": "explanation", "Decisions": "decisions"}


def on_config(config: Any) -> Any:
    """Every page of these folders is in the navigation, also those nobody listed."""
    docs = Path(config.docs_dir)
    for section in config.nav:
        for title, pages in section.items() if isinstance(section, dict) else ():
            if title in FOLDERS:
                found = sorted(
                    path.relative_to(docs).as_posix() for path in (docs / FOLDERS[title]).glob("*.md")
                )
                pages += [path for path in found if path not in pages]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put what the code says in place of `<!-- commands -->` and `<!-- settings -->`."""
    if page.file.src_uri == "reference/cli.md":
        return markdown.replace("<!-- commands -->", commands())
    if page.file.src_uri == "reference/settings.md":
        return markdown.replace("<!-- settings -->", settings())
    if page.file.src_uri == "reference/errors.md":
        return markdown.replace("<!-- codes -->", codes())
    return markdown


def commands() -> str:
    """One heading per command, with its own help text."""
    from shiftboss.cli.tree import tree

    parts: list[str] = []
    for node in tree():
        parts += [f"## shiftboss {node.name}", "", node.help.capitalize() + ".", ""]
        for inner in node.children or [node]:
            name = f"shiftboss {node.name}" + (f" {inner.name}" if inner is not node else "")
            if inner is not node:
                parts += [f"### {name}", ""]
            parts += [_described(name, inner.command), ""]
    return "\n".join(parts)


def _described(name: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    lines = [_prose(inspect.cleandoc(command.help or "")), "", f"```text\n{_usage(name, shown)}\n```", ""]
    rows = [_row(parameter) for parameter in shown]
    if rows:
        lines += ["| argument or option | meaning |", "|---|---|", *rows]
    return "\n".join(lines)


def _prose(text: str) -> str:
    return re.sub(r"^Example: (.*)$", r"Example: `\1`", text, flags=re.MULTILINE)


def _usage(name: str, parameters: list[Any]) -> str:
    words = [name]
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            word = parameter.name.upper()
            words.append(word if parameter.required else f"[{word}]")
    options = any(parameter.param_type_name == "option" for parameter in parameters)
    return " ".join([*words, *(["[OPTIONS]"] if options else [])])


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.name.upper()
    else:
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
    help = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    return f"| `{name}` | {help} |"


def settings() -> str:
    """Every key with its variable, type and default."""
    from shiftboss.model.settings import Settings

    lines = ["| key | environment | default |", "|---|---|---|"]
    default = Settings()
    for key in Settings.keys():  # noqa: SIM118 -- a method of ours, not of a dict
        variable = "SHIFTBOSS_" + key.replace(".", "_").upper()
        value = "hidden" if Settings.is_secret(key) else default.value_of(key)
        shown = "" if value in (None, (), {}, "hidden") else f"`{value}`".replace("|", "\\|")
        lines.append(f"| `{key}` | `{variable}` | {shown} |")
    return "\n".join(lines)


def codes() -> str:
    """Exit codes, from the tree of errors."""
    from shiftboss.model import errors

    classes = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    by_code: dict[int, list[Any]] = {}
    for kind in classes:
        if issubclass(kind, errors.ShiftbossError) and "exit_code" in vars(kind):
            by_code.setdefault(kind.exit_code, []).append(kind)
    lines = ["| code | meaning |", "|---|---|", "| 0 | done |"]
    for code, kinds in sorted(by_code.items()):
        meaning = "; ".join(f"{kind.__name__}: {(kind.__doc__ or '').splitlines()[0]}" for kind in kinds)
        lines.append(f"| {code} | {meaning} |")
    return "\n".join(lines)
