"""Prompt templates: versioned Jinja files in this folder and in the user's (`ai.prompts`).

`summary.j2` and `summary@3.j2` are versions of the template `summary`. By default the highest version is
used; `summary@2` selects another. The blocks `system` and `user` become messages; a file without blocks is
the user message.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, TemplateError, meta, nodes

from shiftboss.extensions.ai.protocol import Message
from shiftboss.model.errors import ConfigError, UsageError

HERE = Path(__file__).parent
FILE = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*?)(?:@(?P<version>\d+))?\.j2")
BLOCKS = ("system", "user")


@dataclass(frozen=True)
class Prompt:
    """One template file."""

    name: str
    path: Path
    number: int | None
    environment: Environment

    @cached_property
    def version(self) -> str:
        """The version number and a hash of the text, which reveals edits without a new number."""
        digest = hashlib.sha256("\0".join([self._source, *self._parents]).encode()).hexdigest()[:8]
        return digest if self.number is None else f"{self.number}-{digest}"

    @cached_property
    def _source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def _trees(self) -> list[nodes.Template]:
        return [self.environment.parse(text) for text in (self._source, *self._parents)]

    @cached_property
    def _parents(self) -> list[str]:
        """The texts of the templates that this one extends or includes."""
        loader, found, queue = self.environment.loader, [], [self._source]
        assert loader is not None
        while queue:
            for name in meta.find_referenced_templates(self.environment.parse(queue.pop())):
                text = loader.get_source(self.environment, str(name))[0]
                if text not in found:
                    found.append(text)
                    queue.append(text)
        return found

    @cached_property
    def _family(self) -> list[Template]:
        """The template and its ancestors, nearest first."""
        family = [self.environment.get_template(self.path.name)]
        while (name := _extends(family[-1])) is not None:
            family.append(self.environment.get_template(name))
        return family

    @cached_property
    def variables(self) -> dict[str, bool]:
        """All variables, and whether each is required (it has no `default` and no `is defined` test)."""
        names = {name for tree in self._trees for name in meta.find_undeclared_variables(tree)}
        optional = {name for tree in self._trees for name in _optional(tree)}
        return {name: name not in optional for name in sorted(names)}

    def messages(self, variables: Mapping[str, Any]) -> list[Message]:
        self._check(variables)
        try:
            return [{"role": role, "content": text} for role, text in self._texts(variables) if text]
        except TemplateError as error:
            raise UsageError(f"template {self.name}: {error}", hint=str(self.path)) from error

    def _texts(self, variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        template, *parents = self._family
        context = template.new_context(dict(variables))
        for parent in parents:  # like Jinja, nearest block first
            for block, function in parent.blocks.items():
                context.blocks.setdefault(block, []).append(function)
        if not context.blocks:
            yield "user", template.render(variables).strip()
        for role in BLOCKS:
            if role in context.blocks:
                yield role, "".join(context.blocks[role][0](context)).strip()

    def _check(self, variables: Mapping[str, Any]) -> None:
        known = self.variables
        missing = [name for name, needed in known.items() if needed and name not in variables]
        unknown = [name for name in variables if name not in known]
        if missing or unknown:
            what = (
                f"needs the variable {', '.join(missing)}"
                if missing
                else f"has no variable {', '.join(unknown)}"
            )
            raise UsageError(
                f"template {self.name} {what}", hint=f"its variables are {', '.join(known) or 'none'}"
            )


def _extends(template: Template) -> str | None:
    assert template.environment.loader is not None
    assert template.name is not None
    text = template.environment.loader.get_source(template.environment, template.name)[0]
    tree = template.environment.parse(text).find(nodes.Extends)
    return str(tree.template.as_const()) if tree is not None else None


def _optional(tree: nodes.Template) -> Iterator[str]:
    looked: list[nodes.Expr | None] = [
        node.node for node in tree.find_all(nodes.Test) if node.name == "defined"
    ]
    looked += [node.node for node in tree.find_all(nodes.Filter) if node.name in ("default", "d")]
    yield from (node.name for node in looked if isinstance(node, nodes.Name))


class Prompts:
    """The templates in the user's folder, then the built-in ones."""

    def __init__(self, folder: Path | None = None) -> None:
        if folder is not None and not folder.is_dir():
            raise ConfigError(
                f"there is no folder {folder}", hint="set ai.prompts to the folder of your prompt templates"
            )
        self._folders = [folder, HERE] if folder is not None else [HERE]
        self._environment = _environment(self._folders)
        self._found: dict[str, Prompt] = {}

    def get(self, name: str) -> Prompt:
        """Return a template by name, such as `summary` or, with a version, `summary@2`."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Prompt:
        wanted, _, number = name.partition("@")
        for folder in self._folders:
            prompts = [prompt for prompt in self._in(folder) if prompt.name == wanted]
            if number:
                prompts = [prompt for prompt in prompts if str(prompt.number) == number]
            if prompts:
                return max(prompts, key=lambda prompt: prompt.number or 0)
        versions = [f"{wanted}@{each.number}" for each in self.all() if each.name == wanted and each.number]
        known = ", ".join(versions or sorted({prompt.name for prompt in self.all()}))
        raise ConfigError(f"there is no prompt template {name!r}", hint=f"choose one of: {known}")

    def all(self) -> list[Prompt]:
        return [prompt for folder in self._folders for prompt in self._in(folder)]

    def _in(self, folder: Path) -> Iterator[Prompt]:
        for path in sorted(folder.glob("*.j2")):
            if found := FILE.fullmatch(path.name):
                number = int(found["version"]) if found["version"] else None
                yield Prompt(found["name"], path, number, self._environment)


def _environment(folders: Sequence[Path]) -> Environment:
    # No escaping: the output is a prompt, not HTML.
    environment = Environment(
        loader=FileSystemLoader(folders), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        auto_reload=False, autoescape=False,  # noqa: S701
    )  # fmt: skip
    environment.filters |= {"json": _json, "fenced": fenced}
    return environment


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2).decode()


def fenced(text: Any, tag: str = "material") -> str:
    """Return the text between tags that contain a hash of it, so that it cannot contain the closing tag."""
    text = str(text)
    mark = f"{tag}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"
    return f"<{mark}>\n{text}\n</{mark}>"
