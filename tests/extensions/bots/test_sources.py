"""Sources of a run: files of one folder or public addresses, with limits on size and time."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from bot_helpers import SAMPLE, Site

from shiftboss.extensions.bots.catalog import Catalog
from shiftboss.extensions.bots.public import PublicTransport, is_public
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.bots.sources import SourceTrouble, chosen, retry_after
from shiftboss.model.errors import UsageError

OVEN = {"type": "node", "id": 5, "lat": 51.92, "lon": 4.48, "tags": {"name": "Oven", "shop": "bakery"}}
FOUND = orjson.dumps({"elements": [OVEN]})


async def look(given: str | None, **settings: Any) -> list[Any]:
    catalog, bots = Catalog(), BotsSettings(**settings)
    return await chosen(given, bots).read(catalog.cities["rotterdam"], list(catalog.categories.values()))


async def test_an_order_reads_files_of_one_folder_only(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.geojson").write_bytes(SAMPLE.read_bytes())
    (tmp_path / "secret.geojson").write_bytes(SAMPLE.read_bytes())
    (inside / "link.geojson").symlink_to(tmp_path / "secret.geojson")
    os.mkfifo(inside / "fifo")
    (inside / "folder").mkdir()
    assert await look("a.geojson", source_dir=inside)
    assert await look(str(inside / "a.geojson"), source_dir=inside)
    refused = {}
    for name in (
        "../secret.geojson",
        "link.geojson",
        "fifo",
        "folder",
        "missing",
        "/dev/zero",
        "/etc/passwd",
        "a\0b",
    ):
        with pytest.raises(UsageError) as error:
            await asyncio.wait_for(look(name, source_dir=inside), 5)
        refused[name] = error.value.message.replace(repr(name), "?")
    assert set(refused.values()) == {"? is not a file below bots.source_dir"}, "no answer tells what exists"
    with pytest.raises(UsageError, match="is not a file below"):
        await look(str(SAMPLE))
    assert await look(None, source=str(SAMPLE)), "the owner of the settings names any file"


async def test_a_source_is_bounded_in_size_and_time(tmp_path: Path, site: Site) -> None:
    (tmp_path / "large.geojson").write_bytes(b" " * 1_000_001)
    with pytest.raises(SourceTrouble, match="larger than 1 MB"):
        await look("large.geojson", source_dir=tmp_path, source_max_mb=1)
    with pytest.raises(SourceTrouble, match="larger than 1 MB"):
        await look(site.page("/large", body=b" " * 1_000_001), private_sites=True, source_max_mb=1)
    bomb = gzip.compress(gzip.compress(bytes(100_000_000)))
    with pytest.raises(SourceTrouble, match="encoding gzip, gzip"):
        await look(
            site.page("/bomb", body=bomb, **{"content-encoding": "gzip, gzip"}),
            private_sites=True,
            source_max_mb=1,
        )
    site.hold = asyncio.Event()
    with pytest.raises(SourceTrouble, match="not read within"):
        await look(site.page("/slow"), private_sites=True, source_timeout=0.2)
    site.hold.set()


async def test_a_point_in_a_thousand_lists_is_no_place(tmp_path: Path) -> None:
    deep = f"{'[' * 900}4.48, 51.92{']' * 900}"
    feature = (
        '{"type": "Feature", "geometry": {"coordinates": %s}, "properties": {"name": "x", "shop": "bakery"}}'
    )
    (tmp_path / "deep.geojson").write_text('{"features": [' + feature % deep + "]}")
    assert await look("deep.geojson", source_dir=tmp_path) == [None]


@pytest.mark.serial
async def test_reading_leaves_the_loop_free(tmp_path: Path) -> None:
    feature = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [4.48, 51.92]},
        "properties": {"name": "Oven", "shop": "bakery", "description": "x" * 300},
    }
    text = json.dumps(feature)
    (tmp_path / "many.geojson").write_text('{"features": [' + ",".join([text] * 30_000) + "]}")
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    began, ticker = time.monotonic(), asyncio.create_task(tick())
    assert len(await look("many.geojson", source_dir=tmp_path)) == 30_000
    ticker.cancel()
    took = time.monotonic() - began
    assert longest < max(0.5, took / 2), (longest, took)


async def test_a_busy_source_is_waited_for(site: Site) -> None:
    class Busy(dict[str, Any]):
        """Busy twice, then well."""

        def get(self, path: str, default: Any = None) -> Any:
            answers = {1: (429, {"Retry-After": "1"}, b""), 2: (503, {"Retry-After": "1"}, b"")}
            return answers.get(len(site.seen), (200, {}, FOUND))

    site.pages = Busy()
    assert len(await look(f"{site.url}/api".replace("http", "HTTP"), private_sites=True)) == 1
    assert len(site.seen) == 3


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after": "0"}) == 1
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}) == 1
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


async def test_an_order_reaches_public_addresses_only(site: Site) -> None:
    inside = site.page("/api", body=FOUND)
    assert await look(None, source=inside), "the owner of the settings names any host"
    for source in (inside, "http://[::1]/", "https://localhost/", "http:///x", "HTTP://no.such.host.invalid"):
        with pytest.raises(UsageError, match="not a public address"):
            await look(source)
    assert len(site.seen) == 1


async def test_a_name_is_resolved_once_and_that_address_connected_to(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is public when checked and private when connected to must not lead inside."""
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    loop = asyncio.get_running_loop()

    async def resolve(*_: Any, **__: Any) -> list[Any]:
        names = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, 0)) for name in names]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200)

    async with httpx.AsyncClient(transport=PublicTransport(httpx.MockTransport(answer))) as client:
        await client.get("https://rebound.example:8443/x")
    assert (sent[0].url.host, sent[0].headers["host"]) == ("93.184.216.34", "rebound.example:8443")
    assert sent[0].extensions["sni_hostname"] == "rebound.example"
    assert len(answers) == 1, "asked once"


def test_addresses_that_stand_for_private_ones() -> None:
    private = ("127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1",
               "64:ff9b::a00:1", "2002:7f00:1::", "224.0.0.1", "0.0.0.0", "100.64.0.1", "fec0::1",
               "::127.0.0.1", "64:ff9b:1::1", "2001:0:7f00:1::ffff:fffe")  # fmt: skip
    assert [a for a in private if is_public(ipaddress.ip_address(a))] == []
    assert is_public(ipaddress.ip_address("93.184.216.34"))
    assert is_public(ipaddress.ip_address("2606:4700::1111"))
