"""Every command of `shiftboss`, from its own help."""

from __future__ import annotations

import inspect
import re
from typing import Any

from manual.markdown import cell, code, sentence, table
from shiftboss.cli.tree import tree


def text() -> str:
    parts: list[str] = []
    for node in tree():
        parts += [f"## shiftboss {node.name}", "", sentence(node.help), ""]
        for inner in node.children or [node]:
            name = f"shiftboss {node.name}" + (f" {inner.name}" if inner is not node else "")
            parts += [f"### {name}", ""] if inner is not node else []
            parts += [*_described(name, inner.command, "" if inner is not node else node.help), ""]
    return "\n".join(parts)


def _described(name: str, command: Any, told: str) -> list[str]:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    help = inspect.cleandoc(command.help or "")
    help = re.sub(r"^Examples?: (.*)$", r"Example: `\1`", help, flags=re.MULTILINE)
    lines = ["```text", _usage(name, shown), "```", ""]
    if help and help.rstrip(".").lower() != told.rstrip(".").lower():
        lines = [help, "", *lines]
    rows = [(code(_name(one)), cell(sentence(getattr(one, "help", None) or ""))) for one in shown]
    return lines + (table(("argument or option", "meaning"), rows) if rows else [])


def _usage(name: str, parameters: list[Any]) -> str:
    words = [name]
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            word = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
            words.append(word if parameter.required else f"[{word}]")
    options = any(parameter.param_type_name == "option" for parameter in parameters)
    return " ".join([*words, *(["[OPTIONS]"] if options else [])])


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    return ", ".join([*parameter.opts, *parameter.secondary_opts])
