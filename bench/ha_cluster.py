"""A PostgreSQL cluster that fails over: Patroni, etcd and HAProxy, each on its own host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from tests.network import Host, Network
from tests.servers import debian_programs

ETCD, HAPROXY, PORT, API, PROXY = "/usr/bin/etcd", "/usr/sbin/haproxy", 5432, 8008, 6432
#: Patroni's own default is a `ttl` of 30; 20 is the least that it takes.
TIMES = {"ttl": 20, "loop_wait": 2, "retry_timeout": 5}
PARAMETERS = {"max_connections": 200, "shared_buffers": "64MB", "wal_keep_size": "256MB", "hot_standby": "on"}
HBA = ["local all all trust", "host all all 0.0.0.0/0 trust", "host replication replicator 0.0.0.0/0 trust"]


class Node:
    """One server with its Patroni."""

    def __init__(self, host: Host, place: Path, patroni: Path) -> None:
        self.host, self.name, self.place = host, host.name, place / host.name
        self._patroni = patroni
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [self._patroni / "bin" / "patroni", self.place / "patroni.json"]
        self._process = self.host.start(words, self.place / "log", user="postgres")

    def signal(self, number: signal.Signals) -> None:
        """Signal Patroni and all processes of PostgreSQL at once, as if the machine stopped."""
        told: set[int] = set()
        while new := self.host.pids() - told:  # those that were forked meanwhile
            for pid in new:
                with suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).send_signal(number)
            told |= new

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        Cluster.wait(lambda: not self.host.pids(), f"{self.name} is dead", 30)
        if self._process is not None:
            self._process.wait()

    def ask(self, query: str, database: str = "postgres") -> list[Any]:
        """Query the server over its socket, without the network. None if it does not respond."""
        target = f"host={self.place} port={PORT} user=postgres dbname={database} connect_timeout=2"
        try:
            with psycopg.connect(target, autocommit=True) as conn:
                return conn.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]
        except psycopg.Error:
            return []

    @property
    def primary(self) -> bool:
        return self.ask("SELECT pg_is_in_recovery()") == [(False,)]


class Cluster:
    """etcd, the nodes, and the host `client` with a HAProxy that points to the primary."""

    def __init__(self, net: Network, place: Path, patroni: Path, nodes: int, synchronous: bool) -> None:
        self._place, self._patroni, self.synchronous, self.net = place, patroni, synchronous, net
        self.etcd, self.client = net.host("etcd"), net.host("client")
        self.nodes = [Node(net.host(f"db{n + 1}"), place, patroni) for n in range(nodes)]
        hosts = ",".join(f"{node.host.address}:{PORT}" for node in self.nodes)
        self.urls = {
            "several hosts": f"postgresql://postgres@{hosts}/app?target_session_attrs=read-write",
            "HAProxy": f"postgresql://postgres@127.0.0.1:{PROXY}/app",
        }

    def start(self) -> None:
        address = self.etcd.address
        words = [ETCD, "--data-dir", self._place / "etcd", "--listen-client-urls", f"http://{address}:2379"]
        words += [
            "--advertise-client-urls",
            f"http://{address}:2379",
            "--listen-peer-urls",
            "http://127.0.0.1:2380",
        ]
        self.etcd.start(words, self._place / "etcd.log")
        for node in self.nodes:
            node.place.mkdir()
            (node.place / "patroni.json").write_text(json.dumps(self._settings(node), indent=1))
            shutil.chown(node.place, "postgres", "postgres")
            node.start()
        (self._place / "haproxy.cfg").write_text(self._haproxy())
        self.client.start([HAPROXY, "-db", "-f", self._place / "haproxy.cfg"], self._place / "haproxy.log")
        self.wait(lambda: self.healthy, "the cluster comes up", 90)

    def _settings(self, node: Node) -> dict[str, Any]:
        """The configuration file of one Patroni."""
        dcs = TIMES | {
            "primary_start_timeout": 0,
            "synchronous_mode": self.synchronous,
            "postgresql": {"use_pg_rewind": True, "parameters": PARAMETERS},
        }
        roles = {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}}
        return {
            "scope": "bench",
            "name": node.name,
            "restapi": {
                "listen": f"{node.host.address}:{API}",
                "connect_address": f"{node.host.address}:{API}",
            },
            "etcd3": {"host": f"{self.etcd.address}:2379"},
            "bootstrap": {"dcs": dcs, "initdb": [{"encoding": "UTF8"}]},
            "postgresql": {
                "listen": f"{node.host.address}:{PORT}",
                "connect_address": f"{node.host.address}:{PORT}",
                "data_dir": str(node.place / "data"),
                "bin_dir": str(debian_programs()),
                "authentication": roles,
                "pg_hba": HBA,
                "pgpass": str(node.place / "pgpass"),
                "parameters": {"unix_socket_directories": str(node.place)},
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
        }

    def _haproxy(self) -> str:
        servers = "".join(
            f"  server {node.name} {node.host.address}:{PORT} check port {API}\n" for node in self.nodes
        )
        return (
            "defaults\n  mode tcp\n  timeout connect 4s\n  timeout client 30m\n  timeout server 30m\n"
            f"  timeout check 2s\nlisten postgresql\n  bind 127.0.0.1:{PROXY}\n"
            "  option httpchk OPTIONS /primary\n  http-check expect status 200\n"
            f"  default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions\n{servers}"
        )

    @property
    def primary(self) -> Node | None:
        return next((node for node in self.nodes if node.primary), None)

    @property
    def healthy(self) -> bool:
        """Whether there is one primary that all others follow, one of them synchronously if configured."""
        if sum(node.primary for node in self.nodes) != 1 or (primary := self.primary) is None:
            return False
        states = primary.ask("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'")
        return len(states) == len(self.nodes) - 1 and (not self.synchronous or ("sync",) in states)

    def switch_over(self) -> None:
        """Switch over to the node that Patroni chooses."""
        words = [
            self._patroni / "bin" / "patronictl",
            "-c",
            self.nodes[0].place / "patroni.json",
            "switchover",
            "--force",
        ]
        done = self.client.run(words, env=os.environ | {"LC_ALL": "C.UTF-8"})
        if done.returncode:
            raise RuntimeError(f"the switchover was refused: {done.stdout}{done.stderr}")

    @staticmethod
    def wait(condition: Callable[[], Any], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s: {what}")
            time.sleep(0.1)
