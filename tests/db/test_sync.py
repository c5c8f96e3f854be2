"""The database families without an event loop."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shiftboss import App
from shiftboss.db import SyncDatabase
from shiftboss.extensions.runs.store import Runs
from shiftboss.model.errors import DatabaseError, ShiftbossError
from shiftboss.model.task import NewTask

COMPONENT = "worker:processing:0"


@pytest.fixture
def sync_db(database_url: str) -> Iterator[SyncDatabase]:
    with SyncDatabase.open(database_url) as db:
        yield db


def test_the_life_of_a_worker_as_documented(sync_db: SyncDatabase) -> None:
    db = sync_db
    db.health.register_worker(component=COMPONENT, pid=os.getpid(), status="starting")
    db.health.update_heartbeat(component=COMPONENT, status="healthy", current_job=None)
    [worker] = db.health.get_all_workers()
    assert (worker["component"], worker["status"], worker["pid"]) == (COMPONENT, "healthy", os.getpid())
    assert time.time() - worker["last_seen"] < 30
    for paused in (True, False):
        details = json.loads(worker["details_json"] or "{}") | {"paused": paused}
        db.health.update_details(worker["component"], json.dumps(details))
        row = db.health.get_worker(COMPONENT)
        assert json.loads(row["details_json"])["paused"] is paused
    db.health.update_status(component=COMPONENT, status="crashed")
    db.health.increment_restart_count(COMPONENT)
    db.health.update_status(component=COMPONENT, status="starting", pid=os.getpid())
    db.health.update_heartbeat(component=COMPONENT)
    db.health.update_status(component=COMPONENT, status="stopping")
    db.health.remove_worker(component=COMPONENT)
    assert db.health.get_all_workers() == []


def test_other_families_and_those_of_extensions(sync_db: SyncDatabase) -> None:
    [made] = sync_db.tasks.enqueue([NewTask(task_type="x")])
    assert sync_db.tasks.get(made.id)["status"] == "Queued"
    assert [row["name"] for row in sync_db.insights.fleet.queues()] == ["default"]
    assert sync_db.fetch_one("SELECT 1 AS one") == {"one": 1}
    runs: Any = sync_db.family(Runs)
    assert runs._target is sync_db.runs._target
    with pytest.raises(AttributeError):
        _ = sync_db.nothing


def test_errors_arrive_in_the_caller(sync_db: SyncDatabase) -> None:
    with pytest.raises(DatabaseError):
        sync_db.execute("SELECT 1 / 0")
    with pytest.raises(ShiftbossError):
        sync_db.health.update_status("worker:none:0", "healthy")


def test_many_threads_may_use_it(sync_db: SyncDatabase) -> None:
    ids: list[Any] = []

    def work() -> None:
        ids.extend(sync_db.tasks.enqueue([NewTask(task_type="x")]))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({made.id for made in ids}) == 8


def test_a_database_that_can_not_be_opened_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ShiftbossError):
        SyncDatabase.open("mysql://x")
    assert threading.active_count() <= before + 1, "its thread ends by itself"


def test_an_app_has_it_too(database_url: str) -> None:
    app = App("sync", url=database_url)
    try:
        assert app.sync.db.health.get_all_workers() == []
    finally:
        app.sync.close()
