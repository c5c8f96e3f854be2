"""The registry of bots: long jobs that are tracked as runs."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict

from shiftboss.extensions.bots.run import Run
from shiftboss.model.errors import UsageError

Work = Callable[..., Awaitable[None]]

SHIPPED = ("discovery", "classify", "verify", "monitor")


class NoParams(BaseModel):
    """The parameters of a bot that takes none."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Bot:
    name: str
    work: Work
    params: type[BaseModel]
    description: str

    @property
    def task_type(self) -> str:
        return f"bot.{self.name}"

    async def carry_out(self, run: Run, params: BaseModel) -> None:
        """Call the bot's function; a bot without parameters takes only the run."""
        await (self.work(run) if self.params is NoParams else self.work(run, params))

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters, for the API and the form on the page."""
        return self.params.model_json_schema()


@dataclass
class Bots:
    by_name: dict[str, Bot] = field(default_factory=dict)

    def add(self, new: Bot) -> None:
        known = self.by_name.setdefault(new.name, new)
        if known.work.__qualname__ != new.work.__qualname__:
            raise UsageError(f"two bots are named {new.name!r}", hint="give one of them another name")

    def __iter__(self) -> Iterator[Bot]:
        return iter(self.by_name.values())


_all = Bots()


def bot(name: str) -> Callable[[Work], Work]:
    """Register `async def work(run: Run, params: MyParams)` as a bot, described by its docstring."""
    if not name or name != name.strip().lower():
        raise UsageError(
            f"{name!r} is not a valid name for a bot",
            hint="use lower case without leading or trailing spaces",
        )

    def decorate(work: Work) -> Work:
        if not inspect.iscoroutinefunction(work):
            raise UsageError(f"bot {name} is not async", hint="write `async def`")
        description = inspect.cleandoc(work.__doc__ or name).partition("\n")[0]
        _all.add(Bot(name, work, _params_of(work), description))
        return work

    return decorate


def _params_of(work: Callable[..., Any]) -> type[BaseModel]:
    names = list(inspect.signature(work).parameters)
    if len(names) < 2:
        return NoParams
    kind = get_type_hints(work).get(names[1])
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        raise UsageError(
            f"the second parameter of {work.__qualname__} must be annotated with a pydantic model",
            hint="class MyParams(BaseModel): ... ; async def work(run: Run, params: MyParams)",
        )
    return kind


def load_bots(modules: Iterable[str] = ()) -> Bots:
    """Return the built-in bots and those in `modules` (setting `bots.modules`)."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in (*(f"shiftboss.extensions.bots.{name}" for name in SHIPPED), *modules):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            hint = "check the setting bots.modules"
            raise UsageError(f"there is no module {name!r}", hint=hint) from None
    return _all
