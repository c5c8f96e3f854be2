"""The database of the fleet: a server started by the runner, or a given one."""

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

#: The application name of the fleet's sessions.
SESSIONS = "shiftboss-chaos"


class ChaosDatabase:
    """A given database. No faults are injected into its server."""

    owned = False

    def __init__(self, url: str) -> None:
        self._url = url

    def admin_url(self) -> str:
        """Return the URL for the runner itself, which no fault affects."""
        return self._url

    def fleet_url(self) -> str:
        """Return the URL for the fleet. It may point to a pooler."""
        return self._url

    async def open(self) -> None:
        """Start the server if necessary."""

    async def close(self) -> None:
        """Stop what `open` started."""

    def hit(self, number: signal.Signals) -> None:
        """Send a signal to the postmaster, which is then restarted."""
        raise NotImplementedError


class EmbeddedDatabase(ChaosDatabase):
    """An embedded server in its own directory. Its keeper restarts it."""

    owned = True

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self._server = EmbeddedServer(directory, settings=settings, linger=0)
        self._password = secrets.token_hex(12)
        self._last = ""

    async def open(self) -> None:
        self._last = await asyncio.to_thread(self._server.acquire)
        await asyncio.to_thread(make_database, self._last, self._password)

    async def close(self) -> None:
        self._server.release()
        await asyncio.to_thread(self._server.stop)

    def admin_url(self) -> str:
        self._last = self._server.url() or self._last  # it may restart on another port
        return urlunsplit(urlsplit(self._last)._replace(path="/chaos"))

    def fleet_url(self) -> str:
        return ordinary(self.admin_url(), self._password)

    def hit(self, number: signal.Signals) -> None:
        state = self._server.running()
        if state is not None:
            os.kill(state.postmaster, number)


def make_database(superuser: str, password: str) -> None:
    """Create the database `chaos` with an ordinary role, because connection limits exempt superusers."""
    with psycopg.connect(superuser, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE chaos LOGIN PASSWORD {}").format(password))
        conn.execute("CREATE DATABASE chaos OWNER chaos")


def ordinary(url: str, password: str) -> str:
    address = urlsplit(url).netloc.rpartition("@")[2]
    return urlunsplit(urlsplit(url)._replace(netloc=f"chaos:{password}@{address}"))


def address(url: str) -> tuple[str, int]:
    """Return the host, or the directory of its socket, and the port."""
    parts = conninfo_to_dict(url)
    host = str(parts.get("hostaddr") or parts.get("host") or os.environ.get("PGHOST") or "127.0.0.1")
    return host.split(",")[0], int(str(parts.get("port") or os.environ.get("PGPORT") or 5432).split(",")[0])


def through(url: str, port: int, name: str) -> str:
    """Return the URL of the same database through a local proxy on this port."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    query = {key: value for key, value in parse_qsl(parts.query) if key not in ("host", "hostaddr", "port")}
    netloc = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
    query["application_name"] = name
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query)))
