"""Verify, monitor and classify: each check and its effect, and limits on requests to websites."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from bot_helpers import SAMPLE, Site

from shiftboss.db import Database
from shiftboss.extensions.bots import checks
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.bots.web import WebsiteChecks

Perform = Callable[..., Any]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Mo-Fr 08:00-18:00; Sa 09:00-17:00; Su off", "ok"),
        ("24/7", "ok"),
        ("Mo,We 08:00-12:00,13:00-17:00", "ok"),
        ("Apr-Oct Tu-Su 10:00-18:00; PH closed", "ok"),
        ("Mo-Fr 08:00-30:00", "bad"),
        ("from nine to five", "bad"),
        ("", "missing"),
    ],
)
def test_opening_hours(text: str, verdict: str) -> None:
    assert checks.opening_hours(text)["verdict"] == verdict


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        ("+31 10 555 0101", "ok"),
        ("(010) 555-0101", "ok"),
        ("call us", "bad"),
        ("12", "bad"),
        (None, "missing"),
    ],
)
def test_phone(number: str | None, verdict: str) -> None:
    assert checks.phone(number)["verdict"] == verdict


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ({"coordinates": "ok", "address": "ok", "website": "missing"}, "verified"),
        ({"coordinates": "bad", "address": "ok"}, "rejected"),
        ({"coordinates": "ok", "phone": "bad", "website": "bad", "address": "ok"}, "rejected"),
        ({"coordinates": "ok", "website": "bad", "address": "ok"}, "candidate"),
        ({"coordinates": "ok", "address": "missing", "website": "unknown"}, "candidate"),
    ],
)
def test_what_follows(verdicts: dict[str, str], status: str) -> None:
    assert checks.decide({name: {"verdict": verdict} for name, verdict in verdicts.items()}) == status


async def test_websites_are_looked_at_politely(site: Site) -> None:
    site.page("/robots.txt", body=b"User-agent: *\nDisallow: /private\n")
    settings = BotsSettings(host_pause=0.05, private_sites=True, http_timeout=0.5)
    async with WebsiteChecks(settings) as web:
        assert (await web.look(site.page("/open")))["verdict"] == "ok"
        assert (await web.look(site.page("/moved", 301, location="/open")))["verdict"] == "ok"
        assert (await web.look(site.url + "/gone"))["verdict"] == "bad"
        assert (await web.look(site.page("/loop", 302, location="/loop")))["detail"] == "too many redirects"
        assert (await web.look(site.page("/down", 503)))["verdict"] == "unknown"
        refused = await web.look(site.page("/private/page"))
        assert (refused["verdict"], "robots" in refused["detail"]) == ("unknown", True)
        assert [path for _, path, _ in site.seen].count("/robots.txt") == 1
        assert "/private/page" not in [path for _, path, _ in site.seen]
        began = time.monotonic()
        await asyncio.gather(*(web.look(site.url + "/open") for _ in range(4)))
        assert time.monotonic() - began >= 0.15, "one host is asked once per pause"
        site.hold = asyncio.Event()
        assert (await web.look(site.url + "/open"))["detail"] == "no answer in time"
        site.hold.set()


async def test_addresses_inside_our_network_are_nobodys_website(site: Site) -> None:
    async with WebsiteChecks(BotsSettings()) as web:
        assert (await web.look(site.page("/open")))["detail"] == "not a public address"
        assert (await web.look("file:///etc/passwd"))["verdict"] == "bad"
        assert (await web.look("http://["))["verdict"] == "bad"
    assert site.seen == []


async def test_verify_promotes_and_rejects_and_monitor_rechecks(
    db: Database, perform: Perform, site: Site
) -> None:
    await perform("discovery", "rotterdam", source=str(SAMPLE))
    await db.execute("UPDATE places SET website = %s WHERE website IS NOT NULL", [site.page("/fine")])
    await db.execute("UPDATE places SET lat = 10 WHERE name = 'Apotheek Blaak'")
    counters = await perform("verify", "rotterdam")
    assert counters == {"checked": 8, "promoted": 7, "rejected": 1}
    (rejected,) = await db.places.list_places(status="rejected")
    assert rejected["checks"]["coordinates"] == {"verdict": "bad", "detail": "outside Rotterdam"}
    assert await perform("verify", "rotterdam") == {}

    assert await perform("monitor", "rotterdam") == {}, "nothing is stale yet"
    del site.pages["/fine"]
    await db.execute(
        "UPDATE places SET checked_at = now() - interval '40 days', phone = 'x' WHERE website IS NOT NULL"
    )
    assert await perform("monitor", "rotterdam") == {"rechecked": 2, "now_rejected": 2}


async def test_classify_assigns_categories_with_confidence(db: Database, perform: Perform) -> None:
    await perform("discovery", source=str(SAMPLE))
    await db.execute("UPDATE places SET category = NULL")
    counters = await perform("classify", min_confidence=0.0)
    assert counters["classified"] == 10
    rows = {row["name"]: row for row in await db.places.list_places()}
    right = {
        "Bakkerij De Ochtend": "bakery",
        "Koffiebar Kade": "cafe",
        "Boekhandel Haven": "bookshop",
        "Apotheek Blaak": "pharmacy",
        "Museum aan de Gracht": "museum",
    }
    assert {name: rows[name]["category"] for name in right} == right
    assert all(0 < row["confidence"] <= 1 for row in rows.values())
    assert await perform("classify") == {}, "all are classified"
