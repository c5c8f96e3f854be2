"""The extension interface. The core finds extensions through entry points and imports none of them.

An extension is one `Extension` object that a distribution declares as an entry point:

```toml
[project.entry-points."shiftboss.extensions"]
notes = "shiftboss_notes:extension"
```

Targets are written as `module:attribute` and imported on first use. An extension whose packages are not
installed fails only when it is used, with an error that names the extra to install.
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

from shiftboss.model.errors import ConfigError, NotInstalled

log = logging.getLogger("shiftboss.extension")

GROUP = "shiftboss.extensions"


@dataclass(frozen=True)
class Command:
    """The target of a command's typer app, its help text, and the extra with the packages that it needs."""

    target: str
    help: str
    extra: str | None = None
    open: bool = False
    """Accept options that the command does not declare."""


@dataclass(frozen=True)
class Option:
    """An option that an extension adds to a command. It sets one of the extension's settings."""

    setting: str
    help: str
    kind: type = str
    short: str | None = None
    repeatable: bool = False
    """The setting is a list, and each use of the option adds a value."""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """What an extension contributes. All fields except `name` and `package` are optional."""

    name: str
    package: str
    """The Python package. Its `sql` directory can have `migrations`, `functions` and `views`."""
    extra: str | None = None
    """The extra of `pip install 'shiftboss[extra]'` that installs its dependencies."""
    extras: Mapping[str, str] = field(default_factory=dict)
    """Extras to list in `shiftboss doctor` if they are not installed: name → a module that they install."""
    after: tuple[str, ...] = ()
    """Extensions whose tables or modules this one uses."""

    schemas: tuple[str, ...] = ()
    """Schemas that its SQL creates. The roles of `shiftboss db roles` get privileges on their objects."""
    tables: tuple[str, ...] = ()
    """Tables that its SQL creates in `public`, for the same purpose."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Sections of the settings: name → a subclass of `shiftboss.model.section.Section`."""
    families: Mapping[str, str] = field(default_factory=dict)
    """Families of SQL functions: `db.<name>` → a class that takes the `Database`."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes of API objects, as `Context.name`, `App.name` or `Sync.name` → `(object) -> value`."""
    handlers: tuple[str, ...] = ()
    """`Handlers` that `shiftboss up` serves without an app."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    """Commands of the CLI, by name: a typer app, or for `noun verb` a function added to that noun."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Options of other commands: `command --option` → what it sets."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that every command sets, unless they are set already."""
    loggers: tuple[str, ...] = ()
    """Loggers of its dependencies that log every request. Commands show only their warnings."""
    routes: tuple[str, ...] = ()
    """FastAPI routers for the HTTP service."""
    pages: tuple[str, ...] = ()
    """Tuples of `Page` for the dashboard; see the module `site` of the extension that serves it."""
    cards: tuple[str, ...] = ()
    """`Card`s on the overview page."""
    stories: tuple[str, ...] = ()
    """`Story` objects, which add entries to a task's timeline; see the same module."""
    services: tuple[str, ...] = ()
    """`async def start(up: Up) -> None`: services that `shiftboss up` runs beside the workers."""
    companions: tuple[str, ...] = ()
    """`(db, settings) -> Service`: services that run in every process that can become the leader."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Sources of tasks in place of the database, used if a setting has a value: setting →
    `(settings) -> Source`."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """Engines that can run handlers: name → `(address, settings) -> shiftboss.worker.engines.Engine`."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Requests of workers without a database: name → `async (db, arguments) -> JSON`."""
    duties: tuple[str, ...] = ()
    """`(db, settings) -> list[Duty]`: duties of the leader for this extension, including retention."""
    snapshot: Mapping[str, str] = field(default_factory=dict)
    """Parts of the metrics snapshot: key → `async (db) -> value`."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Live updates for the dashboard: a NOTIFY channel → `async (db, payloads) -> list[(kind, row)]`."""
    alerts: tuple[str, ...] = ()
    """`async (db) -> list[alert]`: problems to show in the list of alerts."""
    rules: tuple[str, ...] = ()
    """Tuples of `shiftboss.model.alert.Rule`, for notifications, Prometheus and Grafana."""
    findings: tuple[str, ...] = ()
    """`async (db, settings) -> list[Finding]`: findings for `shiftboss doctor`."""
    metrics: tuple[str, ...] = ()
    """`async (db) -> list[metric family]`: metrics for `/metrics`."""


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all installed extensions, each after the ones it depends on."""
    found = {extension.name: extension for extension in _found()}
    graph = {name: [other for other in one.after if other in found] for name, one in sorted(found.items())}
    try:
        return tuple(found[name] for name in TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ConfigError(
            f"extensions depend on each other in a cycle: {' → '.join(error.args[1])}"
        ) from None


def load(target: str) -> Any:
    """Import the object that `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def contributions(kind: str, left_out: Callable[[Extension], None] | None = None) -> Iterator[Any]:
    """Yield the loaded contributions of one kind from all extensions: `contributions("routes")`.

    Extensions whose packages are not installed are skipped; `left_out` is called for each of them.
    """
    for extension in extensions():
        try:
            brought = [load(target) for target in getattr(extension, kind)]
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("shiftboss"):
                raise
            log.debug("%s of extension %s skipped: no module %s", kind, extension.name, error.name)
            if left_out is not None:
                left_out(extension)
            continue
        yield from brought


def named(kind: str) -> dict[str, str]:
    """Return the targets of one kind by name, over all extensions: `named("families")`."""
    targets: dict[str, str] = {}
    for extension in extensions():
        for name, target in getattr(extension, kind).items():
            if name in targets:
                raise ConfigError(f"two extensions have {kind} named {name!r}", hint="uninstall one of them")
            targets[name] = target
    return targets


def attribute(owner: object, name: str) -> Any:
    """Return the attribute that an extension adds to `owner`. It is created on first use."""
    brought = {} if name.startswith("_") else named("attributes")
    wanted = next(
        (one for kind in type(owner).__mro__ if (one := f"{kind.__name__}.{name}") in brought), None
    )
    if wanted is None:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    try:
        value = load(brought[wanted])(owner)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("shiftboss"):
            raise
        extra = next(one.extra for one in extensions() if wanted in one.attributes)
        raise missing(wanted, extra, error) from error
    vars(owner)[name] = value
    return value


def missing(what: str, extra: str | None, error: ModuleNotFoundError) -> NotInstalled:
    """Return the error for a feature whose packages are not installed."""
    hint = f"pip install 'shiftboss[{extra}]'" if extra else f"pip install {error.name}"
    return NotInstalled(f"{what} needs packages that are not installed ({error.name})", hint=hint)


def _found() -> Iterator[Extension]:
    for entry in entry_points(group=GROUP):
        extension = _load_entry(entry)
        if extension is not None:
            yield extension


def _load_entry(entry: EntryPoint) -> Extension | None:
    """Return the extension, or None if its directory was removed from the installation."""
    try:
        extension = entry.load()
    except ModuleNotFoundError as error:
        if error.name is None or not entry.module.startswith(error.name):
            raise
        log.debug("extension %s is declared, but module %s does not exist", entry.name, entry.module)
        return None
    if not isinstance(extension, Extension):
        raise ConfigError(f"the entry point {entry.name} = {entry.value} is not an Extension")
    return extension
