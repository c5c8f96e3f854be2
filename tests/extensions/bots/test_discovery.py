"""Discovery creates no duplicates of moved or renamed places, and resumes where it stopped."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from bot_helpers import SAMPLE, Heard, Site

from shiftboss.db import Database
from shiftboss.extensions.bots.sources import SourceTrouble
from shiftboss.model.errors import UsageError

Perform = Callable[..., Any]


def bakery(id: str, name: str, lat: float, lon: float, phone: str | None = None) -> dict[str, Any]:
    tags = {"@id": id, "name": name, "shop": "bakery"} | ({"phone": phone} if phone else {})
    return {"type": "Feature", "geometry": {"type": "Point", "coordinates": [lon, lat]}, "properties": tags}


def extract(path: Path, *features: dict[str, Any]) -> str:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return str(path)


async def test_reads_a_city_and_category_from_geojson(db: Database, perform: Perform) -> None:
    counters = await perform("discovery", "rotterdam", "bakery", source=str(SAMPLE))
    assert counters == {"found": 3, "inserted": 3, "skipped": 1}
    rows = await db.places.list_places(city="rotterdam")
    first = next(row for row in rows if row["name"] == "Bakkerij De Ochtend")
    assert first["address"] == "Lijnbaan 12, 3012 EL Rotterdam"
    assert (first["phone"], first["category"], first["status"]) == ("+31105550101", "bakery", "candidate")
    everything = await perform("discovery", source=str(SAMPLE))
    assert (everything["inserted"], everything["unchanged"]) == (7, 3)
    assert await db.places.count_places() == 10


async def test_seen_twice_moved_and_renamed_make_no_doubles(
    db: Database, perform: Perform, tmp_path: Path
) -> None:
    file = tmp_path / "places.geojson"
    one, two = (
        bakery("node/1", "Bakker Jan", 51.92, 4.48),
        bakery("node/2", "Brood & Co", 51.93, 4.47, "+31105550000"),
    )
    same = bakery("way/3", "BAKKER  JAN", 51.9201, 4.4801)
    assert (await perform("discovery", "rotterdam", source=extract(file, one, two, same)))["inserted"] == 2
    moved = bakery("node/1", "Bakker Jan", 51.95, 4.50)
    renamed = bakery("node/2", "De Nieuwe Korst", 51.93, 4.47, "+31105550000")
    counters = await perform("discovery", "rotterdam", source=extract(file, moved, renamed))
    assert (counters["moved"], counters["renamed"]) == (1, 1)
    elsewhere = bakery("node/99", "De Nieuwe Korst", 51.90, 4.45, "+31 10 555 0000")
    assert (await perform("discovery", "rotterdam", source=extract(file, elsewhere)))["moved"] == 1
    assert await db.places.count_places() == 2
    assert {row["name"] for row in await db.places.list_places()} == {"Bakker Jan", "De Nieuwe Korst"}


async def test_two_shops_of_a_chain_with_one_phone_stay_two(
    db: Database, perform: Perform, tmp_path: Path
) -> None:
    chain = [bakery(f"node/{n}", "Keten", 51.90 + n / 100, 4.48, "+31900555") for n in range(3)]
    file = extract(tmp_path / "chain.geojson", *chain)
    assert (await perform("discovery", "rotterdam", source=file))["inserted"] == 3
    assert (await perform("discovery", "rotterdam", source=file))["unchanged"] == 3


async def test_two_runs_at_once_make_no_doubles(db: Database, perform: Perform) -> None:
    await asyncio.gather(*(perform("discovery", "rotterdam", source=str(SAMPLE)) for _ in range(4)))
    assert await db.places.count_places() == 8


async def test_goes_on_where_it_stopped(
    db: Database, perform: Perform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftboss.extensions.bots.discovery.BATCH", 10)
    features = [bakery(f"node/{n:03}", f"Bakker {n}", 51.85 + n / 1000, 4.48) for n in range(100)]
    file = extract(tmp_path / "many.geojson", *features)
    heard = Heard(stop_at=40)
    with pytest.raises(asyncio.CancelledError):
        await perform("discovery", "rotterdam", source=file, heard=heard)
    assert 40 <= await db.places.count_places() < 60
    second = Heard()
    counters = await perform("discovery", "rotterdam", source=file, heard=second, checkpoint=heard.checkpoint)
    assert counters["inserted"] == counters["found"] == 60
    assert await db.places.count_places() == 100
    assert second.percents[:-1] == sorted(second.percents[:-1])


async def test_reads_overpass(perform: Perform, db: Database, site: Site) -> None:
    elements = [
        {"type": "node", "id": 5, "lat": 51.92, "lon": 4.48, "tags": {"name": "Oven", "shop": "bakery"}},
        {
            "type": "way",
            "id": 6,
            "center": {"lat": 51.93, "lon": 4.47},
            "tags": {"name": "Korst", "shop": "pastry"},
        },
        {"type": "node", "id": 7, "lat": 48.85, "lon": 2.35, "tags": {"name": "Paris", "shop": "bakery"}},
        {"type": "node", "id": 8, "lat": "?", "lon": None, "tags": {"name": "Nowhere", "shop": "bakery"}},
        "nonsense",
    ]
    source = site.page("/api/interpreter", body=orjson.dumps({"elements": elements}))
    counters = await perform("discovery", "rotterdam", "bakery", source=source)
    assert counters == {"found": 2, "inserted": 2, "skipped": 2}
    assert b"shop" in site.seen[0][2]
    assert b"51.842" in site.seen[0][2]


async def test_a_source_that_fails_says_so(perform: Perform, site: Site, tmp_path: Path) -> None:
    with pytest.raises(SourceTrouble, match="503"):
        await perform("discovery", "delft", source=site.page("/busy", 503))
    with pytest.raises(SourceTrouble, match="neither"):
        await perform("discovery", "delft", source=site.page("/odd", body=b"[]"))
    with pytest.raises(UsageError, match="is not a file below"):
        await perform("discovery", "delft", source=str(tmp_path / "missing.geojson"))


async def test_one_bad_feature_does_not_end_the_run(db: Database, perform: Perform, tmp_path: Path) -> None:
    """What the database could not keep, or no index hold, is left out or cut."""
    fine = [bakery(f"node/{n}", f"Bakery {n}", 51.92 + n / 1000, 4.48) for n in range(2)]
    odd = bakery("node/7", "Odd", 51.93, 4.49)
    odd["properties"] |= {"cuisine": "a\x00b", "phone": "".join(map(str, range(3000)))}
    long = [
        bakery("node/8", secrets.token_hex(5000), 51.94, 4.49),
        bakery(secrets.token_hex(5000), "Long id", 51.95, 4.49),
        bakery("node/\x00", "NUL id", 51.96, 4.49),
    ]
    file = extract(tmp_path / "odd.geojson", *fine, odd, *long)
    counters = await perform("discovery", "rotterdam", source=file)
    assert (counters["inserted"], counters["skipped"]) == (3, 3)
