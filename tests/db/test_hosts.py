"""How connection URLs with several hosts are used."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from shiftboss.db import Database, hosts, watch
from shiftboss.model.errors import DatabaseUnavailable

TWO = "postgresql://app@a:5433,b/app?target_session_attrs=read-write"


@pytest.fixture(autouse=True)
def _nothing_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_answered", {})
    monkeypatch.setattr(hosts, "_silent", {})


def answer(url: str, host: str, port: int) -> None:
    conn: Any = SimpleNamespace(info=SimpleNamespace(host=host, port=port))
    hosts.answered(url, conn)


def test_the_host_that_answered_last_is_tried_first() -> None:
    url = TWO.replace("a:5433,b", "a:5433,b:5434")
    assert conninfo_to_dict(hosts.conninfo(url))["host"] == "a,b"
    answer(url, "b", 5434)
    chosen = conninfo_to_dict(hosts.conninfo(url))
    assert (chosen["host"], chosen["port"]) == ("b,a", "5434,5433")
    answer(url, "a", 5433)
    assert conninfo_to_dict(hosts.conninfo(url))["host"] == "a,b"


def test_a_silent_host_is_tried_last_until_it_answers() -> None:
    url = TWO.replace("a:5433,b", "a:5433,b:5434,c:5435")
    answer(url, "a", 5433)
    hosts.silent(url, "a", 5433)
    assert conninfo_to_dict(hosts.conninfo(url))["host"] == "b,c,a"
    answer(url, "c", 5435)
    assert conninfo_to_dict(hosts.conninfo(url))["host"] == "c,b,a"
    answer(url, "a", 5433)
    assert conninfo_to_dict(hosts.conninfo(url))["host"] == "a,b,c"


@pytest.mark.parametrize(
    "url",
    [
        "host=a,b port=5432 target_session_attrs=any",
        "host=a,b hostaddr=10.0.0.1,10.0.0.2 port=5432 target_session_attrs=read-write",
        "host=c,d port=5432 target_session_attrs=read-write",
    ],
)
def test_an_order_that_means_something_else_stays(url: str) -> None:
    answer(url, "b", 5432)
    assert conninfo_to_dict(hosts.conninfo(url))["host"] == conninfo_to_dict(url)["host"]


def test_one_port_is_for_all_hosts() -> None:
    url = "host=a,b port=5433 target_session_attrs=primary"
    answer(url, "b", 5433)
    assert conninfo_to_dict(hosts.conninfo(url))["port"] == "5433,5433"


def test_the_url_chooses_its_timeouts() -> None:
    assert conninfo_to_dict(hosts.conninfo(TWO))["connect_timeout"] == str(hosts.EACH_HOST)
    chosen = conninfo_to_dict(hosts.conninfo(TWO + "&connect_timeout=2&tcp_user_timeout=0"))
    assert (chosen["connect_timeout"], chosen["tcp_user_timeout"]) == ("2", "0")


async def test_a_statement_that_takes_long_goes_on(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 0.1)
    assert await db.fetch("SELECT 1 AS one FROM pg_sleep(1)") == [{"one": 1}]


@pytest.mark.session
async def test_a_statement_of_a_backend_that_is_unknown_ends(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that leads to another server by now."""
    monkeypatch.setattr(watch, "PATIENCE", 0.1)
    real = psycopg.AsyncConnection.execute

    async def elsewhere(conn: Any, query: Any, params: Any = None, **more: Any) -> Any:
        return await real(conn, query, [[0]] if "pg_stat_activity" in str(query) else params, **more)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", elsewhere)
    async with asyncio.timeout(20):
        with pytest.raises(DatabaseUnavailable):
            await db.fetch("SELECT 1 FROM pg_sleep(60)")
    monkeypatch.undo()
    assert await db.fetch("SELECT 1 AS one") == [{"one": 1}]
