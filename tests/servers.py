"""The server of a test run, chosen by `--server`: embedded, debian, debian-pgbouncer, or the URL of one.

Tests run as an ordinary role that owns its databases. On Debian's server that role has settings which must not matter.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from shiftboss.db.programs import server_account

SUPERUSER = "SHIFTBOSS_TEST_SUPERUSER_URL"
POOLER = "SHIFTBOSS_TEST_POOLER"  # the address of PgBouncer, if the tests go through it
ODD = "SHIFTBOSS_TEST_ODD_SETTINGS"
TESTER, PASSWORD = "tester", "ordinary"
PGBOUNCER = "/usr/sbin/pgbouncer"
START_SECONDS = 30.0
OURS = ("embedded", "debian", "debian-pgbouncer")  # started here, and gone with the run

ODD_SETTINGS = {
    "statement_timeout": "60s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "15s",
    "default_transaction_isolation": "repeatable read",
    "search_path": "odd, public",
    "TimeZone": "Pacific/Chatham",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "iso_8601",
}


def choose(server: str, directory: Path) -> list[subprocess.Popen[bytes]]:
    """Start what `--server` asks for; the processes to stop at the end. Workers of xdist read the environment."""
    if server == "embedded":
        return []
    if server not in OURS:
        os.environ[SUPERUSER] = server
        return []
    port = free_port()
    started = [_debian(directory / "debian", port)]
    os.environ[SUPERUSER] = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    os.environ[ODD] = "yes"
    if server == "debian-pgbouncer":
        started.append(_pgbouncer(directory / "pgbouncer", port))
    return started


def stop(started: list[subprocess.Popen[bytes]]) -> None:
    for process in reversed(started):
        process.terminate()  # of PostgreSQL a smart shutdown: all tests have closed their connections
    for process in started:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ordinary(superuser: str) -> str:
    """The URL of the role that tests run as; `superuser` itself where that is not one."""
    with psycopg.connect(superuser, autocommit=True) as conn:
        row = conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = session_user").fetchone()
        if row is None or not row[0]:
            return superuser
        if conn.execute("SELECT FROM pg_roles WHERE rolname = %s", [TESTER]).fetchone() is None:
            conn.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(TESTER), PASSWORD))
        for name, value in ODD_SETTINGS.items() if os.environ.get(ODD) else ():
            _set(conn, name, value)
    parts = urlsplit(superuser)
    address = os.environ.get(POOLER) or f"{parts.hostname}:{parts.port or 5432}"
    return urlunsplit(parts._replace(netloc=f"{TESTER}:{PASSWORD}@{address}"))


def direct(url: str) -> str:
    """The same database without the pooler, for tests that keep something in their session."""
    parts, server = urlsplit(url), urlsplit(os.environ[SUPERUSER])
    credentials = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{credentials}@{server.hostname}:{server.port or 5432}"))


def _set(conn: psycopg.Connection[Any], name: str, value: str) -> None:
    # A list such as search_path has to be given in parts.
    values = sql.SQL(", ").join(sql.Literal(part.strip()) for part in value.split(","))
    conn.execute(
        sql.SQL("ALTER ROLE {} SET {} = {}").format(sql.Identifier(TESTER), sql.Identifier(name), values)
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def debian_programs() -> Path:
    """The programs of Debian's newest PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise SystemExit("Debian's PostgreSQL is not installed: run `script/setup --debian` as root")
    return found[-1].parent


def _debian(place: Path, port: int) -> subprocess.Popen[bytes]:
    """Debian's newest PostgreSQL as it comes, in a cluster of its own, with a collation of ICU."""
    home = debian_programs()
    place.mkdir(parents=True)
    place.parent.chmod(0o755)
    options = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
    if int(home.parts[-2]) >= 15:
        options += ["--locale-provider=icu", "--icu-locale=en-US"]
    run([home / "initdb", "-D", place / "data", *options], own(place))
    command = [home / "postgres", "-D", place / "data", "-p", str(port), "-k", place]
    process = start(command, place)
    await_port(port, place / "log")
    return process


def _pgbouncer(place: Path, server_port: int) -> subprocess.Popen[bytes]:
    """A plain transaction pooler before all databases of that server."""
    place.mkdir(parents=True)
    port = free_port()
    (place / "users").write_text(f'"{TESTER}" "{PASSWORD}"\n')
    (place / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server_port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = scram-sha-256\nauth_file = {place}/users\npool_mode = transaction\n"
        "max_client_conn = 1000\ndefault_pool_size = 8\nserver_idle_timeout = 5\nserver_login_retry = 0.2\n"
    )
    process = start([PGBOUNCER, "-q", place / "pgbouncer.ini"], place)
    os.environ[POOLER] = f"127.0.0.1:{port}"
    await_port(port, place / "log")
    return process


def own(place: Path) -> dict[str, Any]:
    """Neither PostgreSQL nor PgBouncer runs as root."""
    account = server_account()
    if account is None:
        return {}
    for path in (place, *place.iterdir()):
        os.chown(path, account.uid, account.gid)
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def run(command: list[Any], account: dict[str, Any]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", **account)
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stdout}{done.stderr}")


def start(command: list[Any], place: Path) -> subprocess.Popen[bytes]:
    with (place / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **own(place))


def await_port(port: int, log: Path) -> None:
    until(lambda: _answers(port), f"nothing answers on port {port}: see {log}")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.05)


def in_memory() -> str | None:
    """A place for a server where making a database takes a tenth of the time; None where there is not enough."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 1024**3
    return str(memory) if roomy and os.access(memory, os.W_OK) else None
