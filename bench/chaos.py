"""Run chaos on one of four configurations, with fsync on, and append the result to the published report.

    bench/chaos pg18 --minutes 15 --tasks 250000 [--seed 1] [--append docs/benchmarks/chaos.md]

pg15 is Debian's server with its default settings, pg18 the embedded one; with `-pgbouncer` the fleet goes
through PgBouncer in transaction mode, which is killed together with PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from tests.servers import PGBOUNCER, await_port, debian_programs, free_port, own, run, start

from shiftboss.extensions.chaos.cli import carry_out
from shiftboss.extensions.chaos.places import (
    ChaosDatabase,
    EmbeddedDatabase,
    address,
    make_database,
    ordinary,
)
from shiftboss.extensions.chaos.proxy import Proxy
from shiftboss.extensions.chaos.report import text
from shiftboss.extensions.chaos.runner import Options

PASSWORD = "ordinary"


class Kept:
    """A process that is restarted whenever it exits."""

    def __init__(self, command: list[Any], place: Path) -> None:
        self._command, self._place = command, place
        self._stopping = False

    async def open(self, port: int) -> None:
        self.process: subprocess.Popen[bytes] = start(self._command, self._place)
        await asyncio.to_thread(await_port, port, self._place / "log")
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while not self._stopping:
            await asyncio.to_thread(self.process.wait)
            await asyncio.sleep(0.2)
            if not self._stopping:
                self.process = start(self._command, self._place)

    async def close(self) -> None:
        self._stopping = True
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)  # of PostgreSQL a fast shutdown
        await self._keeping


class Debian(ChaosDatabase):
    """Debian's PostgreSQL with its default settings, in a separate cluster."""

    owned = True

    def __init__(self, directory: Path) -> None:
        self._directory, self._port = directory, free_port()

    async def open(self) -> None:
        home, place = debian_programs(), self._directory
        place.mkdir()
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
        run([home / "initdb", "-D", place / "data", *options], own(place))
        command = [home / "postgres", "-D", place / "data", "-p", str(self._port), "-k", place]
        self._server = Kept(command, place)
        await self._server.open(self._port)
        await self._until_it_answers()
        make_database(self._superuser(), PASSWORD)

    async def _until_it_answers(self) -> None:
        while True:
            try:
                psycopg.connect(self._superuser()).close()
                return
            except psycopg.OperationalError:
                await asyncio.sleep(0.1)

    def _superuser(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    async def close(self) -> None:
        await self._server.close()

    def admin_url(self) -> str:
        return self._superuser("chaos")

    def fleet_url(self) -> str:
        return ordinary(self.admin_url(), PASSWORD)

    def hit(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._server.process.send_signal(number)


class Pooled(ChaosDatabase):
    """PgBouncer in front of another server."""

    owned = True

    def __init__(self, inner: ChaosDatabase, directory: Path) -> None:
        self._inner, self._directory, self._port = inner, directory, free_port()

    async def open(self) -> None:
        await self._inner.open()
        self._line = Proxy(
            lambda: address(self._inner.fleet_url())
        )  # its port may change, the pooler's file not
        await self._line.__aenter__()
        user, password = self._credentials()
        self._directory.mkdir()
        (self._directory / "pgbouncer.ini").write_text(
            f"[databases]\nchaos = host=127.0.0.1 port={self._line.port} user={user} password={password}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 1000\ndefault_pool_size = 20\n"
            "server_login_retry = 0.2\n"
        )
        self._pooler = Kept([PGBOUNCER, "-q", self._directory / "pgbouncer.ini"], self._directory)
        await self._pooler.open(self._port)

    def _credentials(self) -> tuple[str, str]:
        user, _, password = self._inner.fleet_url().partition("://")[2].partition("@")[0].partition(":")
        return user, password

    async def close(self) -> None:
        await self._pooler.close()
        await self._line.__aexit__()
        await self._inner.close()

    def admin_url(self) -> str:
        return self._inner.admin_url()

    def fleet_url(self) -> str:
        return f"postgresql://chaos@127.0.0.1:{self._port}/chaos"

    def hit(self, number: signal.Signals) -> None:
        self._inner.hit(number)
        with suppress(ProcessLookupError):
            self._pooler.process.kill()


def place(name: str, directory: Path) -> ChaosDatabase:
    server, _, pooler = name.partition("-")
    directory.mkdir()
    directory.chmod(0o755)
    inner = (
        Debian(directory / "debian")
        if server == "pg15"
        else EmbeddedDatabase(directory / "embedded", {"fsync": "on"})
    )
    return Pooled(inner, directory / "pgbouncer") if pooler else inner


def section(name: str, report: dict[str, Any]) -> str:
    """The section that is appended to the published report."""
    verdict = "clean" if report["clean"] else "broken"
    load = ", ".join(f"{figure:.1f}" for figure in os.getloadavg())
    title = f"{name}, seed {report['seed']}: {verdict}"
    return f"\n## {title}\n\nLoad at the end: {load}.\n\n```text\n{text(report)}```\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=["pg15", "pg15-pgbouncer", "pg18", "pg18-pgbouncer"])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--tasks", type=int, default=0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--quick", type=float, default=95, help="percentage of quick tasks")
    parser.add_argument("--batch", type=int, default=1000, help="tasks that are enqueued at once")
    parser.add_argument("--fault-seconds", type=float, default=4)
    parser.add_argument("--append", type=Path, help="the report to append to")
    parser.add_argument("--json", type=Path, help="write the whole report to this file")
    parser.add_argument("--keep", action="store_true", help="leave the server's files and the logs")
    given = parser.parse_args()
    options = Options(
        seed=given.seed,
        minutes=given.minutes,
        tasks=given.tasks,
        quick=given.quick / 100,
        batch=given.batch,
        fault_seconds=given.fault_seconds,
        keep=given.keep,
    )
    report = asyncio.run(carry_out(lambda directory: place(given.name, directory), options))
    print(text(report), end="")
    if given.json:
        given.json.write_text(json.dumps(report, indent=1, default=str) + "\n")
    if given.append:
        with given.append.open("a") as file:
            file.write(section(given.name, report))
    return int(not report["clean"])


if __name__ == "__main__":
    sys.exit(main())
