"""Validates the bot, city, category and parameters of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from shiftboss.extensions.bots.catalog import Catalog, Category, City
from shiftboss.extensions.bots.registry import Bot, load_bots
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings


class UnknownKey(UsageError):
    """There is no bot, city or category with this key."""

    def __init__(self, field: str, value: str, allowed: Iterable[str]) -> None:
        known = sorted(allowed)
        super().__init__(f"there is no {field} {value!r}", hint=f"choose one of: {', '.join(known)}")
        self.fields = [{"field": field, "value": value, "allowed": known}]


class BadParams(UsageError):
    """The parameters do not satisfy the bot's schema."""

    def __init__(self, bot: str, error: ValidationError) -> None:
        self.fields = [
            {"field": ".".join(map(str, detail["loc"])) or "params", "message": detail["msg"]}
            for detail in error.errors(include_url=False)
        ]
        problems = "; ".join(f"{one['field']}: {one['message']}" for one in self.fields)
        super().__init__(f"the parameters of {bot} are not valid: {problems}")


@dataclass(frozen=True)
class RunOrder:
    """What a run does. Without a city or category, it covers all of the catalog."""

    bot: Bot
    params: BaseModel
    catalog: Catalog
    city: City | None
    category: Category | None

    @property
    def where(self) -> dict[str, str | None]:
        """The keys of the city and the category."""
        return {
            "city": self.city.key if self.city else None,
            "category": self.category.key if self.category else None,
        }

    def stored(self) -> dict[str, Any]:
        """Return the given parameters, without defaults."""
        return self.params.model_dump(mode="json", exclude_unset=True)


@dataclass(frozen=True)
class Bots:
    """The bots, and the cities and categories that their runs can have."""

    by_name: dict[str, Bot]
    catalog: Catalog

    @classmethod
    def of(cls, settings: Settings) -> Bots:
        chosen = BotsSettings.of(settings)
        return cls(load_bots(chosen.modules), Catalog(chosen.config_dir))

    def choices(self) -> dict[str, Any]:
        """Return the names of cities and categories by key, and the errors of their files."""
        return {
            "cities": {key: city.name for key, city in self.catalog.cities.items()},
            "categories": {key: category.name for key, category in self.catalog.categories.items()},
            "errors": self.catalog.errors,
        }

    def check(
        self,
        bot: str,
        city: str | None = None,
        category: str | None = None,
        params: dict[str, Any] | None = None,
    ) -> RunOrder:
        """Return the validated order. Raises `UnknownKey` or `BadParams`; empty keys mean none."""
        chosen = _find("bot", bot, self.by_name)
        if chosen is None:
            raise UnknownKey("bot", bot, self.by_name)
        try:
            valid = chosen.params.model_validate(params or {})
        except ValidationError as error:
            raise BadParams(chosen.name, error) from None
        return RunOrder(
            chosen,
            valid,
            self.catalog,
            _find("city", city, self.catalog.cities),
            _find("category", category, self.catalog.categories),
        )


def _find(field: str, key: str | None, entries: dict[str, Any]) -> Any:
    plain = str(key or "").strip().lower()
    if plain and plain not in entries:
        raise UnknownKey(field, str(key), entries)
    return entries[plain] if plain else None
