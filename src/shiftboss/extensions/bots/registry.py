"""The registry of bots: long jobs that are tracked as runs."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field

from shiftboss.model.errors import UsageError

Work = Callable[..., Awaitable[None]]
Limit = Annotated[int, Field(ge=1, le=1_000_000)]

SHIPPED = ("discovery", "classify", "verify", "monitor")


class NoParams(BaseModel):
    """The parameters of a bot that takes none. Bots with parameters may extend it, to reject unknown ones."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Bot:
    name: str
    work: Work
    params: type[BaseModel]
    description: str

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters, for the API and the form on the page."""
        return self.params.model_json_schema()


_all: dict[str, Bot] = {}


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
        known = _all.setdefault(name, Bot(name, work, _params_of(work), description))
        if known.work.__qualname__ != work.__qualname__:
            raise UsageError(f"two bots are named {name!r}", hint="give one of them another name")
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


def load_bots(modules: Iterable[str] = ()) -> dict[str, Bot]:
    """Return the built-in bots and those in `modules` (setting `bots.modules`), by name."""
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
