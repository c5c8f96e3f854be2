"""Connection options of a URL, and the order in which several hosts are tried."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shiftboss.db.embedded import current

#: Defaults that the URL can override. A server that disappears is noticed `tcp_user_timeout` milliseconds
#: after data was sent to it, or by keepalives on an idle connection.
OPTIONS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
#: The timeout in seconds for each of several hosts: a frozen host accepts connections and never answers.
EACH_HOST: Final = 5
PRIMARY: Final = ("read-write", "primary")

_answered: dict[str, tuple[str, str]] = {}
_silent: dict[str, tuple[str, str]] = {}


def conninfo(url: str) -> str:
    """Return the connection string. Of several hosts, the last one that answered is tried first."""
    given = conninfo_to_dict(current(url))
    hosts = str(given.get("host") or "").split(",")
    options = OPTIONS | ({"connect_timeout": EACH_HOST} if len(hosts) > 1 else {})
    if len(hosts) > 1 and given.get("target_session_attrs") in PRIMARY and not given.get("hostaddr"):
        given |= _ordered(url, hosts, given)
    return make_conninfo("", **(options | given))


def answered(url: str, conn: psycopg.AsyncConnection[Any]) -> None:
    """Remember which host this connection leads to."""
    _answered[url] = (conn.info.host, str(conn.info.port))
    if _silent.get(url) == _answered[url]:
        del _silent[url]


def silent(url: str, host: str, port: int) -> None:
    """Remember that this host does not answer, so that it is tried last."""
    _silent[url] = (host, str(port))


def _ordered(url: str, hosts: list[str], given: dict[str, Any]) -> dict[str, str]:
    ports = str(given.get("port") or 5432).split(",")
    pairs = list(zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False))
    pairs.sort(key=lambda pair: (pair == _silent.get(url), pair != _answered.get(url)))
    return {"host": ",".join(host for host, _ in pairs), "port": ",".join(port for _, port in pairs)}
