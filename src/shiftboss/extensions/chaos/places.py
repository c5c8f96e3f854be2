"""Where the fleet's database is: a server of the runner's own, or one that is given."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from shiftboss.db.embedded import EmbeddedServer

#: The sessions of the fleet, and no others, have this name.
SESSIONS = "shiftboss-chaos"


class Place:
    """A database that somebody else runs. Nothing is done to its server."""

    owned = False

    def __init__(self, url: str) -> None:
        self._url = url

    def admin_url(self) -> str:
        """For the runner itself, past all faults."""
        return self._url

    def fleet_url(self) -> str:
        """For the fleet: it may lead to a pooler."""
        return self._url

    async def open(self) -> None:
        """Make the server ready for use."""

    async def close(self) -> None:
        """End what `open` has started."""

    def hit(self, number: signal.Signals) -> None:
        """Send this to the postmaster, which something restarts."""
        raise NotImplementedError


class Embedded(Place):
    """The embedded server in a directory of its own; its keeper restarts it."""

    owned = True

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self._server = EmbeddedServer(directory, settings=settings, linger=0)
        self._password = secrets.token_hex(12)
        self._last = ""

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        self._last = self._server.acquire()
        make_database(self._last, self._password)

    async def close(self) -> None:
        self._server.release()
        await asyncio.to_thread(self._server.stop)

    def admin_url(self) -> str:
        self._last = self._server.url() or self._last  # it may come back on another port
        return urlunsplit(urlsplit(self._last)._replace(path="/chaos"))

    def fleet_url(self) -> str:
        return ordinary(self.admin_url(), self._password)

    def hit(self, number: signal.Signals) -> None:
        state = self._server.running()
        if state is not None:
            os.kill(state.postmaster, number)


def make_database(superuser: str, password: str) -> None:
    """A database `chaos` of an ordinary role: a superuser is not subject to limits on connections."""
    with psycopg.connect(superuser, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE chaos LOGIN PASSWORD {}").format(password))
        conn.execute("CREATE DATABASE chaos OWNER chaos")


def ordinary(url: str, password: str) -> str:
    address = urlsplit(url).netloc.rpartition("@")[2]
    return urlunsplit(urlsplit(url)._replace(netloc=f"chaos:{password}@{address}"))


def address(url: str) -> tuple[str, int]:
    """Host (or the directory of its socket) and port."""
    parts = conninfo_to_dict(url)
    host = str(parts.get("hostaddr") or parts.get("host") or os.environ.get("PGHOST") or "127.0.0.1")
    return host.split(",")[0], int(str(parts.get("port") or os.environ.get("PGPORT") or 5432).split(",")[0])


def through(url: str, port: int, name: str) -> str:
    """The same database through a proxy on this port of this machine."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    query = {key: value for key, value in parse_qsl(parts.query) if key not in ("host", "hostaddr", "port")}
    netloc = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
    query["application_name"] = name
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query)))
