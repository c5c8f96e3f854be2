"""The tree of all commands, for shell completion and the reference pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shiftboss.cli import commands, load_command
from shiftboss.extension import Command


@dataclass
class Node:
    """A command with its options and subcommands."""

    name: str
    help: str
    command: Any = None
    options: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [child.name for child in self.children]


def tree() -> list[Node]:
    """Return every command whose packages are installed."""
    return [node for name, entry in commands().items() if (node := _top(name, entry)) is not None]


def _top(name: str, entry: Command) -> Node | None:
    try:
        command = load_command(name, entry)
    except ModuleNotFoundError:
        return None
    return _node(name, command, entry.help)


def _node(name: str, command: Any, help: str) -> Node:
    inner: dict[str, Any] = getattr(command, "commands", {})
    return Node(
        name=name,
        help=help,
        command=command,
        options=[option for param in command.params for option in _long(param)],
        children=[_node(key, value, value.get_short_help_str(80)) for key, value in inner.items()],
    )


def _long(param: Any) -> list[str]:
    if param.param_type_name != "option" or param.hidden:
        return []
    return [option for option in (*param.opts, *param.secondary_opts) if option.startswith("--")]
