"""A database of 0.1.0 is migrated while clients of 0.1.0 work: nobody gets an error, and every task runs once.

The calls are those of 0.1.0, with its parameters. `python -m bench.upgrade` does the same with that version's own workers.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any
from uuid import UUID

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.connection import connect
from shiftboss.db.migrate import migrate
from shiftboss.db.table_locks import lock_tables
from shiftboss.model.errors import MigrationError
from tests.servers import direct
from tests.upgrade.test_upgrade import old_url  # noqa: F401 -- the fixture

ENQUEUE = "SELECT id FROM shiftboss.enqueue(%s)"
CLAIM = "SELECT id, lease FROM shiftboss.claim(%s, 5, NULL, NULL, NULL, NULL)"
COMPLETE = "SELECT shiftboss.complete(%s, %s, %s::jsonb[])"
FAIL = "SELECT shiftboss.fail(%s, %s, %s, %s, %s)"
BEAT = "SELECT known, lost FROM shiftboss.beat(%s, %s, NULL, NULL, NULL)"


class Client(threading.Thread):
    """Enqueues, claims, completes, fails and beats until it is stopped and the queue is empty."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(name=name)
        self._url = url
        self.stopping = threading.Event()
        self.rounds = 0
        self.made: list[UUID] = []
        self.ran: Counter[UUID] = Counter()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as conn:
                while self._round(conn):
                    self.rounds += 1
        except BaseException as error:
            self.error = error

    def _round(self, conn: psycopg.Connection[Any]) -> bool:
        if not self.stopping.is_set():
            tasks = json.dumps(
                [{"task_type": "load", "params": {"n": n}, "max_attempts": 1} for n in range(5)]
            )
            self.made += [id for (id,) in conn.execute(ENQUEUE, [tasks])]
        held = conn.execute(CLAIM, [self.name]).fetchall()
        leases = [lease for _, lease in held]
        assert conn.execute(BEAT, [self.name, leases]).fetchone() == (True, [])
        self.ran.update(id for id, _ in held)
        done, failed = held[1:], held[:1]
        self._end(conn, COMPLETE, done, ["1"] * len(done))
        self._end(conn, FAIL, failed, ["no"] * len(failed), ["failed"] * len(failed), [False] * len(failed))
        return bool(held) or not self.stopping.is_set()

    def _end(self, conn: psycopg.Connection[Any], call: str, held: list[Any], *columns: list[Any]) -> None:
        if held:
            ids, leases = zip(*held, strict=True)
            assert conn.execute(call, [list(ids), list(leases), *columns]).fetchone() == ([],)


async def test_a_table_that_is_held_stops_the_migration_and_nothing_else(database_url: str) -> None:
    url = direct(database_url)
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as other:
        holder.execute("LOCK TABLE public.tasks IN ROW EXCLUSIVE MODE")
        async with connect(url) as conn, conn.transaction():
            with pytest.raises(MigrationError, match="locked the tables"):
                await lock_tables(
                    conn, {"public.tasks", "public.workers", "public.none"}, "ACCESS EXCLUSIVE", 0
                )
            other.execute("SET lock_timeout = '5s'; SELECT FROM public.workers")  # it keeps no lock
        holder.rollback()
        async with connect(url) as conn, conn.transaction():
            await lock_tables(conn, {"public.tasks", "public.workers"}, "ACCESS EXCLUSIVE", 0)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("SET lock_timeout = '10ms'; SELECT FROM public.workers")


async def test_old_clients_work_on_while_the_database_is_migrated(old_url: str, eventually: Any) -> None:  # noqa: F811
    clients = [Client(old_url, f"old-{n}") for n in range(3)]
    for client in clients:
        client.start()
    try:
        await eventually(lambda: all(client.rounds >= 3 or client.error for client in clients), 60)
        await migrate(old_url)
        rounds = [client.rounds for client in clients]
        later = Client(old_url, "new")
        clients.append(later)
        later.start()
        await eventually(
            lambda: all(
                client.rounds >= before + 3 or client.error
                for client, before in zip(clients, [*rounds, 0], strict=True)
            ),
            60,
        )
    finally:
        for client in clients:
            client.stopping.set()
            client.join()
    assert [client.error for client in clients] == [None] * 4
    made = {id for client in clients for id in client.made}
    ran = sum((client.ran for client in clients), Counter())
    assert {id: ran[id] for id in made} == dict.fromkeys(made, 1)
    async with await Database.open(old_url) as db:
        ended = await db.fetch("SELECT status, count(*) FROM tasks WHERE task_type = 'load' GROUP BY status")
    assert sum(row["count"] for row in ended) == len(made)
    assert {row["status"] for row in ended} == {"Complete", "Failed"}
