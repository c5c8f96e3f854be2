"""Validates the bot, city, category and parameters of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from shiftboss.extensions.bots.catalog import Catalog, Category, City
from shiftboss.extensions.bots.registry import Bot, Bots
from shiftboss.model.errors import UsageError


class UnknownKey(UsageError):
    """There is no bot, city or category with this key."""

    def __init__(self, field: str, value: str, allowed: Iterable[str]) -> None:
        known = sorted(allowed)
        super().__init__(f"there is no {field} {value!r}", hint=f"choose one of: {', '.join(known)}")
        self.fields = [{"field": field, "value": value, "allowed": known}]


class BadParams(UsageError):
    """The parameters do not satisfy the bot's schema."""

    def __init__(self, bot: str, errors: list[dict[str, str]]) -> None:
        self.fields = list(errors)
        problems = "; ".join(f"{error['field']}: {error['message']}" for error in errors)
        super().__init__(f"the parameters of {bot} are not valid: {problems}")


@dataclass(frozen=True)
class Order:
    bot: Bot
    city: City | None
    category: Category | None
    params: BaseModel

    def stored(self) -> dict[str, Any]:
        """Return the given parameters, without defaults."""
        return self.params.model_dump(mode="json", exclude_unset=True)


def check(
    bots: Bots,
    catalog: Catalog,
    bot: str,
    city: str | None = None,
    category: str | None = None,
    params: dict[str, Any] | None = None,
) -> Order:
    """Return the validated order. Raises `UnknownKey` or `BadParams`; empty keys mean none."""
    name = bot.strip().lower()
    if name not in bots.by_name:
        raise UnknownKey("bot", bot, bots.by_name)
    chosen = bots.by_name[name]
    return Order(
        chosen,
        _find("city", city, catalog.cities),
        _find("category", category, catalog.categories),
        check_params(chosen, params or {}),
    )


def check_params(bot: Bot, params: dict[str, Any]) -> BaseModel:
    try:
        return bot.params.model_validate(params)
    except ValidationError as error:
        problems = [
            {"field": ".".join(map(str, detail["loc"])) or "params", "message": detail["msg"]}
            for detail in error.errors(include_url=False)
        ]
        raise BadParams(bot.name, problems) from None


def _find(field: str, key: str | None, entries: dict[str, Any]) -> Any:
    plain = (key or "").strip().lower()
    if not plain:
        return None
    if plain not in entries:
        raise UnknownKey(field, key or "", entries)
    return entries[plain]
