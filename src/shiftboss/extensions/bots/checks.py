"""Checks the data of a place and decides its status."""

from __future__ import annotations

import re
from typing import Any, Literal

from shiftboss.extensions.bots.catalog import City
from shiftboss.extensions.bots.web import Web

Verdict = Literal["ok", "bad", "missing", "unknown"]
Checks = dict[str, dict[str, str]]

_DAY = r"(?:Mo|Tu|We|Th|Fr|Sa|Su|PH|SH)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = r"(?:[01]\d|2[0-9]):[0-5]\d"
_DAYS = rf"{_DAY}(?:\[\d\])?(?:-{_DAY})?(?:,\s?{_DAY}(?:\[\d\])?(?:-{_DAY})?)*"
_MONTHS = rf"{_MONTH}(?: \d\d?)?(?:-(?:{_MONTH} ?)?(?:\d\d?)?)?:?"
_TIMES = rf"{_TIME}-{_TIME}\+?(?:,\s?{_TIME}-{_TIME}\+?)*"
_RULE = re.compile(rf'(?:{_MONTHS}\s?)?(?:{_DAYS}\s?)?(?:{_TIMES}|off|closed|24/7)?(?:\s?"[^"]*")?')


async def examine(place: dict[str, Any], city: City | None, web: Web | None) -> tuple[str, Checks]:
    """Return the new status of a place, and the results of its checks."""
    checks: Checks = {
        "coordinates": coordinates(city, place["lat"], place["lon"]),
        "address": address(place["address"]),
        "opening_hours": opening_hours(place["opening_hours"]),
        "phone": phone(place["phone"]),
    }
    if web is not None:
        checks["website"] = await website(place["website"], web)
    return decide(checks), checks


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
        return _check("unknown", "the city is not configured")
    return _check("ok") if city.contains(lat, lon) else _check("bad", f"outside {city.name}")


def address(text: str | None) -> dict[str, str]:
    if not text:
        return _check("missing")
    fine = re.search(r"[^\W\d_]{2}", text) and re.search(r"\d", text)
    return _check("ok") if fine else _check("bad", "has no street or no number")


def phone(text: str | None) -> dict[str, str]:
    if not text:
        return _check("missing")
    digits = re.sub(r"[\s()./-]", "", text)
    return _check("ok") if re.fullmatch(r"\+?\d{7,15}", digits) else _check("bad", "not a phone number")


def opening_hours(text: str | None) -> dict[str, str]:
    """Check the common subset of OpenStreetMap's notation."""
    if not text:
        return _check("missing")
    rules = [rule.strip() for rule in re.split(r";|\|\|", text) if rule.strip()]
    wrong = next((rule for rule in rules if not _RULE.fullmatch(rule)), None)
    return _check("ok") if rules and wrong is None else _check("bad", f"invalid: {wrong or text}"[:200])


async def website(url: str | None, web: Web) -> dict[str, str]:
    if not url:
        return _check("missing")
    verdict, detail = await web.look(url if "://" in url else f"https://{url}")
    return _check(verdict, detail)


def _check(verdict: Verdict, detail: str = "") -> dict[str, str]:
    return {"verdict": verdict, "detail": detail} if detail else {"verdict": verdict}
