"""Fail over PostgreSQL many times under load, and count tasks that were lost, repeated or left behind.

    bench/failover [--faults 20] [--asynchronous] [--nodes 3] [--rate 60] [--seed 1] [--json FILE]

The wrapper `bench/failover` installs what is needed. Needs root: every server has a network namespace of its
own. Two supervisors with two workers each run the tasks, and two clients enqueue them: one half over a URL
with several hosts, the other over HAProxy. Prints one JSON object; exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from ha_cluster import Cluster, Node
from tests.network import missing, network

from shiftboss.db.migrate import migrate

ROOT = Path(__file__).resolve().parents[1]
#: Notes every task that becomes Complete: the lease that held it, and the lease that the result names.
AUDIT = """
CREATE TABLE audit (id uuid, lease bigint, result text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.audit VALUES (NEW.id, OLD.lease, NEW.result_data #>> '{}'); RETURN NEW; END $$;
CREATE TRIGGER audit AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (NEW.status = 'Complete' AND OLD.status <> 'Complete') EXECUTE FUNCTION audit();
"""
FLOWS, DRAINS = 120.0, 240.0


class Load:
    """The fleet and its clients, on the host `client`."""

    def __init__(self, cluster: Cluster, place: Path, rate: float) -> None:
        self._cluster, self._place, self._rate = cluster, place, rate
        self._notes = place / "notes"
        self._notes.mkdir()
        self._clients: list[subprocess.Popen[bytes]] = []
        self.pids: set[int] = set()

    def start(self) -> None:
        for way in self._cluster.urls:
            words = ["supervise", "ha_load:handlers", "--queue", "q=2", "--host", way.replace(" ", "-")]
            self._run(way, [sys.executable, "-m", "shiftboss", *words])
            self._clients.append(
                self._run(way, [sys.executable, ROOT / "bench" / "ha_load.py", self._rate / 2])
            )
        for way in self._cluster.urls:
            self._cluster.wait(lambda way=way: self.count("taken", way), f"work flows over {way}", FLOWS)

    def stop_clients(self) -> None:
        for client in self._clients:
            client.kill()
            client.wait()

    def _run(self, way: str, words: list[Any]) -> subprocess.Popen[bytes]:
        env = os.environ | {
            "SHIFTBOSS_DATABASE_URL": self._cluster.urls[way],
            "SHIFTBOSS_DATA_DIR": str(self._place / way.replace(" ", "-")),
            "PYTHONPATH": f"{ROOT}/src:{ROOT}:{ROOT}/bench",
            "BENCH_NOTES": str(self._notes),
            "BENCH_WAY": way.replace(" ", "-"),
        }
        return self._cluster.client.start(words, self._place / f"{way.replace(' ', '-')}.log", env=env)

    def lines(self, kind: str, way: str = "*") -> Iterator[dict[str, Any]]:
        for path in self._notes.glob(f"{kind}.{way.replace(' ', '-')}.*"):
            for line in path.read_bytes().splitlines():
                yield json.loads(line)

    def count(self, kind: str, way: str = "*") -> int:
        return sum(1 for _ in self.lines(kind, way))

    def first_after(self, moment: float, kind: str, way: str) -> float | None:
        return min((line["at"] for line in self.lines(kind, way) if line["at"] > moment), default=None)


class Campaign:
    """Injects one fault after the other. Each starts when the cluster is healthy again."""

    def __init__(self, cluster: Cluster, load: Load) -> None:
        self._cluster, self._load = cluster, load
        self.faults: list[dict[str, Any]] = []
        self._inflict: dict[str, Callable[[Node], Callable[[], None]]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "partition": self._partition,
            "split": self._split,
            "switchover": self._switch_over,
        }

    def run(self, faults: int) -> None:
        kinds = [kind for _ in range(faults) for kind in self._inflict][:faults]
        for number, kind in enumerate(kinds, 1):
            self._fault(kind)
            print(f"{number}/{faults} {json.dumps(self.faults[-1])}", file=sys.stderr, flush=True)

    def _fault(self, kind: str) -> None:
        cluster = self._cluster
        cluster.wait(lambda: cluster.healthy, "the cluster is whole", 240)
        time.sleep(random.uniform(1, 4))
        primary = cluster.primary
        assert primary is not None
        began = time.time()
        undo = self._inflict[kind](primary)
        others = [node for node in cluster.nodes if node is not primary]
        cluster.wait(lambda: any(node.primary for node in others), "another node is promoted", 120)
        promoted = time.time()
        fault = {"kind": kind, "promoted": round(promoted - began, 1)}
        self.faults.append(fault)
        for way in cluster.urls:
            for noted in ("taken", "enqueued"):
                cluster.wait(
                    lambda way=way, noted=noted: self._load.first_after(promoted, noted, way),
                    f"{noted} over {way} after a {kind}",
                    FLOWS,
                )
                flows = self._load.first_after(promoted, noted, way)
                assert flows is not None
                fault[f"{noted} over {way}"] = round(flows - promoted, 1)
        undo()

    def _kill(self, node: Node) -> Callable[[], None]:
        node.kill()
        return node.start

    def _freeze(self, node: Node) -> Callable[[], None]:
        node.signal(signal.SIGSTOP)
        return lambda: node.signal(signal.SIGCONT)

    def _partition(self, node: Node) -> Callable[[], None]:
        """Disconnect the node from everything."""
        self._cluster.net.cut(node.host)
        return lambda: self._cluster.net.heal(node.host)

    def _split(self, node: Node) -> Callable[[], None]:
        """Disconnect the node from etcd and the other nodes, but not from clients."""
        others = [self._cluster.etcd, *(other.host for other in self._cluster.nodes if other is not node)]
        self._cluster.net.cut(node.host, *others)
        return lambda: self._cluster.net.heal(node.host, *others)

    def _switch_over(self, node: Node) -> Callable[[], None]:
        self._cluster.switch_over()
        return lambda: None


def verdict(cluster: Cluster, load: Load) -> dict[str, Any]:
    """Compare what was acknowledged with what the database has after everything has drained."""
    primary = cluster.primary
    assert primary is not None
    rows = {str(id): status for id, status in primary.ask("SELECT id, status FROM tasks", "app")}
    enqueued = {line["id"] for line in load.lines("enqueued")}
    taken = defaultdict(set)
    for line in load.lines("taken"):
        taken[line["id"]].add(line["lease"])
    audit = primary.ask("SELECT id::text, lease::text, result FROM audit", "app")
    finished = Counter(id for id, _, _ in audit)
    return {
        "acknowledged": len(enqueued),
        "lost": len(enqueued - rows.keys()),
        "finishes_acknowledged": len(taken),
        "finishes_undone": sum(rows.get(id) != "Complete" for id in taken if id in rows),
        "acknowledged_twice": sum(len(leases) > 1 for leases in taken.values()),
        "finished_twice": sum(count > 1 for count in finished.values()),
        "accepted_for_another_attempt": sum(lease != result for _, lease, result in audit),
        "ended_otherwise": sum(
            status not in ("Complete", "Queued", "In Progress") for status in rows.values()
        ),
        "left": sum(status in ("Queued", "In Progress") for status in rows.values()),
        "ran_more_than_once": primary.ask("SELECT count(*) FROM tasks WHERE attempts > 0", "app")[0][0],
    }


def drained(cluster: Cluster) -> bool:
    primary = cluster.primary
    query = "SELECT count(*) FROM tasks WHERE status IN ('Queued', 'In Progress')"
    return primary is not None and primary.ask(query, "app") == [(0,)]


def broken(found: dict[str, Any], synchronous: bool) -> list[str]:
    """The promises that were not kept."""
    never = ["finished_twice", "accepted_for_another_attempt", "left", "ended_otherwise"]
    with_copies = ["lost", "finishes_undone", "acknowledged_twice"]
    return [name for name in never + with_copies * synchronous if found[name]]


def summary(faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Per kind of fault: its number, and the median and maximum of each duration."""
    kinds: dict[str, Any] = {}
    for kind in dict.fromkeys(fault["kind"] for fault in faults):
        some = [fault for fault in faults if fault["kind"] == kind]
        times = {name: [fault[name] for fault in some] for name in some[0] if name != "kind"}
        figures = {name: [round(statistics.median(all), 1), max(all)] for name, all in times.items()}
        kinds[kind] = {"times": len(some)} | figures
    return kinds


@contextmanager
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="shiftboss-failover-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        if os.environ.get("BENCH_DEBUG"):
            print(f"logs stay in {made}", file=sys.stderr)
        else:
            shutil.rmtree(made, ignore_errors=True)


def prepare(cluster: Cluster) -> None:
    primary = cluster.primary
    assert primary is not None
    socket = f"postgresql://postgres@/postgres?host={primary.place}&port=5432"
    with psycopg.connect(socket, autocommit=True) as conn:
        conn.execute("CREATE DATABASE app")
    asyncio.run(migrate(socket.replace("/postgres?", "/app?")))
    with psycopg.connect(socket.replace("/postgres?", "/app?"), autocommit=True) as conn:
        conn.execute(AUDIT)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    with place() as directory, network() as net:
        cluster = Cluster(net, directory, given.patroni, given.nodes, not given.asynchronous)
        cluster.start()
        prepare(cluster)
        load = Load(cluster, directory, given.rate)
        load.start()
        campaign = Campaign(cluster, load)
        try:
            campaign.run(given.faults)
            cluster.wait(lambda: cluster.healthy, "the cluster is whole", 240)
        finally:
            load.stop_clients()
        wedged = False
        try:
            cluster.wait(lambda: drained(cluster), "nothing is left to do", DRAINS)
        except TimeoutError:
            wedged = True
        found = verdict(cluster, load)
    return {
        "synchronous": not given.asynchronous,
        "faults": given.faults,
        "load_average": os.getloadavg()[0],
        "wedged": wedged,
        **found,
        "broken": broken(found, not given.asynchronous),
        "seconds": summary(campaign.faults),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--asynchronous", action="store_true", help="replicate asynchronously")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rate", type=float, default=60, help="tasks enqueued per second")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the faults")
    parser.add_argument("--json", type=Path, help="write the result here as well")
    parser.add_argument("--patroni", type=Path, required=True, help="the environment that Patroni is in")
    given = parser.parse_args()
    if reason := missing():
        parser.error(reason)
    random.seed(given.seed)
    result = measure(given)
    text = json.dumps(result, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")
    return int(bool(result["broken"]) or result["wedged"])


if __name__ == "__main__":
    sys.exit(main())
