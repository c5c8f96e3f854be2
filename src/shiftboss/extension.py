"""The door: everything that an extension can bring. The core finds extensions here and names none of them.

An extension is one `Extension` object that a distribution announces as an entry point:

```toml
[project.entry-points."shiftboss.extensions"]
notes = "shiftboss_notes:extension"
```

Targets are written as `module:attribute` and imported on first use, so an extension whose packages are not
installed costs nothing and fails only where it is used, with the name of the extra to install.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from shiftboss.model.errors import ConfigError, UsageError

log = logging.getLogger("shiftboss.extension")

GROUP = "shiftboss.extensions"


@dataclass(frozen=True)
class Command:
    """Where a command's typer app is, what `--help` says about it, and the extra whose packages it needs."""

    target: str
    help: str
    extra: str | None = None
    open: bool = False
    """Accept options that the command does not declare."""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """What an extension brings. Every field but the name is optional."""

    name: str
    package: str
    """The package that holds it; its `sql` folder has `migrations`, `functions` and `views`."""
    extra: str | None = None
    """The extra of `pip install 'shiftboss[extra]'` that installs what it needs beyond the base."""
    after: tuple[str, ...] = ()
    """Extensions whose tables or modules this one uses."""

    schemas: tuple[str, ...] = ()
    """Schemas that its SQL makes; the roles of `shiftboss db roles` get rights on what is in them."""
    tables: tuple[str, ...] = ()
    """Tables that its SQL makes in `public`, for the same purpose."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Sections of the settings: name → a subclass of `shiftboss.model.section.Section`."""
    families: Mapping[str, str] = field(default_factory=dict)
    """Families of SQL functions: `db.<name>` → a class that takes the `Database`."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """What it adds to objects of the API: `Context.ai`, `App.ai` or `Sync.ai` → `(object) -> value`."""
    handlers: tuple[str, ...] = ()
    """`Handlers` that `shiftboss up` serves when it is given no app."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    """Commands of the CLI, by name: a typer app, or for `noun verb` a function added to that noun."""
    routes: tuple[str, ...] = ()
    """FastAPI routers that the admin service includes."""
    pages: tuple[str, ...] = ()
    """Tuples of `Page` that the admin service shows; see `shiftboss.extensions.admin.page.site`."""
    cards: tuple[str, ...] = ()
    """`Card`s on the overview page."""
    stories: tuple[str, ...] = ()
    """`Story` objects: entries that a task's timeline shows; see the same module."""
    services: tuple[str, ...] = ()
    """`async def start(up: Up) -> None`: what `shiftboss up` runs beside the workers."""
    companions: tuple[str, ...] = ()
    """`(db, settings) -> Service`: what every long-running process of ours that may lead runs as well."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where else workers can get tasks from: name → `(addresses, settings) -> Source`."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """Where else handlers can run: name → `(address, settings) -> shiftboss.worker.engines.Engine`."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """What workers without a database may ask of a coordinator: name → `async (db, arguments) -> JSON`."""
    duties: tuple[str, ...] = ()
    """`(db, settings) -> list[Duty]`: what the leader does for this extension, retention included."""
    snapshot: Mapping[str, str] = field(default_factory=dict)
    """Parts of the metrics snapshot: key → `async (db) -> value`."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Live changes for the page: a NOTIFY channel → `async (db, payloads) -> list[(kind, row)]`."""
    alerts: tuple[str, ...] = ()
    """`async (db) -> list[alert]`: what somebody should look at."""
    rules: tuple[str, ...] = ()
    """Tuples of `shiftboss.model.alert.Rule`: what is announced, and drawn by Prometheus and Grafana."""
    findings: tuple[str, ...] = ()
    """`async (db, settings) -> list[Finding]`: what `shiftboss doctor` reports."""
    metrics: tuple[str, ...] = ()
    """`async (db) -> list[metric family]`: what `/metrics` adds."""


@cache
def extensions() -> tuple[Extension, ...]:
    """Every extension that is installed, each after those it builds on."""
    found = {extension.name: extension for extension in _found()}
    graph = {name: [other for other in one.after if other in found] for name, one in sorted(found.items())}
    try:
        return tuple(found[name] for name in TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ConfigError(
            f"extensions build on each other in a circle: {' → '.join(error.args[1])}"
        ) from None


def load(target: str) -> Any:
    """The object that `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def contributions(kind: str, left_out: Callable[[Extension], None] | None = None) -> Iterator[Any]:
    """What extensions bring of one kind, loaded: `contributions("routes")`.

    What needs packages that are not installed is left out; `left_out` hears of it.
    """
    for extension in extensions():
        try:
            brought = [load(target) for target in getattr(extension, kind)]
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("shiftboss"):
                raise
            log.debug("%s of %s left out: no module %s", kind, extension.name, error.name)
            if left_out is not None:
                left_out(extension)
            continue
        yield from brought


def named(kind: str) -> dict[str, str]:
    """The targets of one kind that has names, over all extensions: `named("families")`."""
    targets: dict[str, str] = {}
    for extension in extensions():
        for name, target in getattr(extension, kind).items():
            if name in targets:
                raise ConfigError(f"two extensions bring {kind} named {name!r}", hint="uninstall one of them")
            targets[name] = target
    return targets


def attribute(owner: object, name: str) -> Any:
    """What an extension adds to `owner` under this name, made on first use and kept there."""
    brought = {} if name.startswith("_") else named("attributes")
    wanted = (f"{kind.__name__}.{name}" for kind in type(owner).__mro__)
    target = next((brought[one] for one in wanted if one in brought), None)
    if target is None:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    value = load(target)(owner)
    vars(owner)[name] = value
    return value


def missing(what: str, extra: str | None, error: ModuleNotFoundError) -> UsageError:
    """The error for something that needs packages which are not installed."""
    hint = f"pip install 'shiftboss[{extra}]'" if extra else f"pip install {error.name}"
    return UsageError(f"{what} needs packages that are not installed ({error.name})", hint=hint)


def _found() -> Iterator[Extension]:
    for entry in entry_points(group=GROUP):
        extension = _load_entry(entry)
        if extension is not None:
            yield extension


def _load_entry(entry: EntryPoint) -> Extension | None:
    """The extension, or None if its folder was removed from the installation."""
    try:
        extension = entry.load()
    except ModuleNotFoundError as error:
        if error.name is None or not entry.module.startswith(error.name):
            raise
        log.debug("extension %s is announced, but %s is not there", entry.name, entry.module)
        return None
    if not isinstance(extension, Extension):
        raise ConfigError(f"the entry point {entry.name} = {entry.value} is not an Extension")
    return extension
