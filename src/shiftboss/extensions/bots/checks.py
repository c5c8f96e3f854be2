"""Checks the data of places and decides their status."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Unpack

from pydantic import Field

from shiftboss.extensions.bots.catalog import City
from shiftboss.extensions.bots.places import PlaceFilter, Places, places_from_checkpoint
from shiftboss.extensions.bots.registry import Limit, NoParams
from shiftboss.extensions.bots.run import Run
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.bots.web import WebsiteChecks, judged

Checks = dict[str, dict[str, str]]

_DAY = r"(?:Mo|Tu|We|Th|Fr|Sa|Su|PH|SH)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = r"(?:[01]\d|2[0-9]):[0-5]\d"
_DAYS = rf"{_DAY}(?:\[\d\])?(?:-{_DAY})?(?:,\s?{_DAY}(?:\[\d\])?(?:-{_DAY})?)*"
_MONTHS = rf"{_MONTH}(?: \d\d?)?(?:-(?:{_MONTH} ?)?(?:\d\d?)?)?:?"
_TIMES = rf"{_TIME}-{_TIME}\+?(?:,\s?{_TIME}-{_TIME}\+?)*"
_RULE = re.compile(rf'(?:{_MONTHS}\s?)?(?:{_DAYS}\s?)?(?:{_TIMES}|off|closed|24/7)?(?:\s?"[^"]*")?')


class CheckParams(NoParams):
    limit: Limit = Field(default=200, description="Maximum number of places")
    websites: bool = Field(default=True, description="Also check websites")


async def check_places(
    run: Run, params: CheckParams, **wanted: Unpack[PlaceFilter]
) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """Check the places of a run, store the results, and yield each place with its new status."""
    cities = run.catalog.cities
    async with WebsiteChecks(BotsSettings.of(run.settings)) as web:
        async for place in places_from_checkpoint(run, params.limit, **wanted):
            checks = {
                "coordinates": coordinates(cities.get(place["city"]), place["lat"], place["lon"]),
                "address": address(place["address"]),
                "opening_hours": opening_hours(place["opening_hours"]),
                "phone": phone(place["phone"]),
            }
            if params.websites:
                checks["website"] = await website(place["website"], web)
            status = decide(checks)
            await run.db.family(Places).check_place(place["id"], status, checks)
            yield place, status


def decide(checks: Checks) -> str:
    """Return rejected if it is outside the city or has two errors, verified if it can be reached."""
    verdicts = {name: check["verdict"] for name, check in checks.items()}
    wrong = [name for name, verdict in verdicts.items() if verdict == "bad"]
    if "coordinates" in wrong or len(wrong) >= 2:
        return "rejected"
    reachable = any(verdicts.get(name) == "ok" for name in ("address", "phone", "website"))
    return "verified" if not wrong and reachable else "candidate"


def coordinates(city: City | None, lat: float, lon: float) -> dict[str, str]:
    if city is None:
        return judged("unknown", "the city is not configured")
    return judged("ok") if city.contains(lat, lon) else judged("bad", f"outside {city.name}")


def address(text: str | None) -> dict[str, str]:
    if not text:
        return judged("missing")
    fine = re.search(r"[^\W\d_]{2}", text) and re.search(r"\d", text)
    return judged("ok") if fine else judged("bad", "has no street or no number")


def phone(text: str | None) -> dict[str, str]:
    if not text:
        return judged("missing")
    digits = re.sub(r"[\s()./-]", "", text)
    return judged("ok") if re.fullmatch(r"\+?\d{7,15}", digits) else judged("bad", "not a phone number")


def opening_hours(text: str | None) -> dict[str, str]:
    """Check the common subset of OpenStreetMap's notation."""
    if not text:
        return judged("missing")
    rules = [rule.strip() for rule in re.split(r";|\|\|", text) if rule.strip()]
    wrong = next((rule for rule in rules if not _RULE.fullmatch(rule)), None)
    return judged("ok") if rules and wrong is None else judged("bad", f"invalid: {wrong or text}"[:200])


async def website(url: str | None, web: WebsiteChecks) -> dict[str, str]:
    if not url:
        return judged("missing")
    return await web.look(url if "://" in url else f"https://{url}")
