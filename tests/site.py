"""A fleet on several hosts with one PostgreSQL, each on a network of its own (see tests/network.py)."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from shiftboss import Context
from shiftboss.db.migrate import migrate
from shiftboss.db.programs import programs, server_account
from shiftboss.worker.handlers import Handlers
from tests import servers
from tests.network import Host, Network, network

ROOT = Path(__file__).parents[1]
PORT, COORDINATOR = 5432, 50051
LEASE = 8.0
HBA = "local all all trust\nhost all all 10.99.0.0/16 trust\n"
SETTINGS = {"fsync": "off", "shared_buffers": "32MB", "listen_addresses": "*", "port": str(PORT)}
TIMES = {
    "SHIFTBOSS_WORKER_LEASE_SECONDS": str(LEASE),
    "SHIFTBOSS_WORKER_BEAT_SECONDS": "1",
    "SHIFTBOSS_COORDINATOR_LEASE_SECONDS": str(LEASE),
    "SHIFTBOSS_COORDINATOR_HEARTBEAT_SECONDS": "1",
    "SHIFTBOSS_WORKER_GRACE_SECONDS": "1",
    "SHIFTBOSS_LEADER_RESCUE_SECONDS": "0.5",
}
#: Notes every end of a task, also one that should not have been possible.
AUDIT = """
CREATE TABLE audit (id uuid, worker_id text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.audit VALUES (NEW.id, OLD.worker_id); RETURN NEW; END $$;
CREATE TRIGGER audit AFTER UPDATE ON tasks FOR EACH ROW WHEN (NEW.status = 'Complete') EXECUTE FUNCTION audit();
"""

handlers = Handlers()


@handlers.task("hold", max_attempts=50)
async def hold(ctx: Context, ticks: str, flag: str) -> str:
    """Until there is a file `flag`. Notes many times a second when it runs, where, and in which attempt."""
    who = os.environ["SITE_HOST"]
    with Path(ticks).open("a", buffering=1) as file:
        while True:
            file.write(f"{time.time()} {who} {ctx.task.lease}\n")
            if Path(flag).exists():
                return who
            await asyncio.sleep(0.05)


@handlers.task("tick", max_attempts=50)
async def tick(ctx: Context, ticks: str, seconds: float) -> str:
    """The same for so many seconds."""
    ends = time.time() + seconds
    with Path(ticks).open("a", buffering=1) as file:
        while time.time() < ends:
            file.write(f"{time.time()} {os.environ['SITE_HOST']} {ctx.task.lease}\n")
            await asyncio.sleep(0.05)
    return os.environ["SITE_HOST"]


class Tick(NamedTuple):
    """A moment in which a task ran, where, and in which attempt."""

    at: float
    host: str
    lease: str


def ticks_in(path: Path) -> list[Tick]:
    lines = (line.split() for line in path.read_text().splitlines())
    return [Tick(float(at), host, lease) for at, host, lease in lines]


def one_after_another(seen: list[Tick]) -> bool:
    """Whether no attempt began before the one before it had stopped."""
    changes = sum(one.lease != next.lease for one, next in pairwise(seen))
    return changes == len({tick.lease for tick in seen}) - 1


class Site:
    """A server on the host `db`; `url` reaches it over its socket, whatever happens to the network."""

    def __init__(self, net: Network, place: Path) -> None:
        self.net, self.place = net, place
        self.db = net.host("db")
        self.url = f"postgresql://postgres@/app?host={place}&port={PORT}"
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        account = server_account()
        assert account is not None, "namespaces need root"
        name, home, data = pwd.getpwuid(account.uid).pw_name, programs(account), self.place / "data"
        os.chown(self.place, account.uid, account.gid)
        words = [home / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
        servers.run(words, {"user": account.uid, "group": account.gid, "extra_groups": []})
        (data / "pg_hba.conf").write_text(HBA)
        chosen = SETTINGS | {"unix_socket_directories": str(self.place)}
        options = [word for setting, value in chosen.items() for word in ("-c", f"{setting}={value}")]
        self._running.append(
            self.db.start([home / "postgres", "-D", data, *options], self.place / "server.log", user=name)
        )
        servers.until(self._answers, f"no server: see {self.place}/server.log")

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            with psycopg.connect(self.url.replace("/app?", "/postgres?"), autocommit=True) as conn:
                conn.execute("CREATE DATABASE app")
            return True
        return False

    async def prepare(self) -> None:
        await migrate(self.url)
        with psycopg.connect(self.url, autocommit=True) as conn:
            conn.execute(AUDIT)

    def shiftboss(
        self, host: Host, *words: Any, database: bool = True, **more: str
    ) -> subprocess.Popen[bytes]:
        """Start a command on a host."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("SHIFTBOSS_")}
        env |= TIMES | {"PYTHONPATH": f"{ROOT}/src:{ROOT}", "SITE_HOST": host.name} | more
        env["SHIFTBOSS_DATA_DIR"] = str(self.place / host.name)
        if database:
            env["SHIFTBOSS_DATABASE_URL"] = f"postgresql://postgres@{self.db.address}:{PORT}/app"
        command = [sys.executable, "-m", "shiftboss", *words]
        process = host.start(command, self.place / f"{host.name}.log", env=env)
        self._running.append(process)
        return process

    def worker(
        self, host: Host, id: str, *words: Any, concurrency: int = 1, **more: Any
    ) -> subprocess.Popen[bytes]:
        named = ("--id", id, "--concurrency", concurrency)
        return self.shiftboss(host, "worker", "tests.site:handlers", *named, *words, **more)

    def stop(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def site() -> Iterator[Site]:
    place = Path(tempfile.mkdtemp(prefix="shiftboss-site-", dir=servers.in_memory()))
    place.chmod(0o755)
    try:
        with network() as net:
            made = Site(net, place)
            try:
                made.start()
                yield made
            finally:
                made.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)
