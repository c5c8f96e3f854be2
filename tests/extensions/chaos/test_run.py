"""Short chaos runs with real processes: on a server of their own, which is killed, and on a database that is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftboss.db import Database
from shiftboss.extensions.chaos.places import ChaosDatabase, EmbeddedDatabase
from shiftboss.extensions.chaos.plan import NAMES
from shiftboss.extensions.chaos.report import text
from shiftboss.extensions.chaos.runner import ChaosRun, Options
from tests.servers import direct

#: What a fleet logs and counts for ever.
STAYS = {
    "ai.vectorizer_worker_process", "shiftboss.counter_tallies", "shiftboss.counters", "shiftboss.error_groups", "shiftboss.events",
    "shiftboss.installation", "shiftboss.sessions", "shiftboss.tallies", "shiftboss.task_totals",
    "shiftboss.type_totals", "shiftboss.work_totals", "shiftboss.worker_totals",
}  # fmt: skip
FLEET = {"coordinator": 1, "supervisor": 1, "slot": 1, "worker": 0, "fed": 1}


def _embedded(directory: Path) -> EmbeddedDatabase:
    return EmbeddedDatabase(directory, {"fsync": "off", "full_page_writes": "off"})


@pytest.mark.timeout(400)
async def test_a_short_run_keeps_every_promise() -> None:
    options = Options(
        seed="ci", minutes=0, tasks=300, faults=8, batch=100, quick=0.7, fault_seconds=0.7, fleet=FLEET
    )
    report = await ChaosRun(_embedded, options, print).run()
    assert report["clean"], text(report)
    assert report["tasks"] >= 300
    assert sum((report["faults"] | report["faults_without_a_victim"]).values()) >= 8
    assert report["faults_left_out"] in ([], ["disk"])


@pytest.mark.session
@pytest.mark.timeout(400)
async def test_a_given_database_is_left_as_it_was(database_url: str) -> None:
    url = direct(database_url)
    async with await Database.open(url) as db:
        before = await _rows(db)
        options = Options(
            seed="ci", minutes=0, tasks=60, batch=60, quick=0.5, without=tuple(NAMES), fleet=FLEET
        )
        report = await ChaosRun(lambda _: ChaosDatabase(url), options, print).run()
        assert report["clean"], text(report)
        assert report["tasks"] >= 120
        after = await _rows(db)
        assert {name: n for name, n in after.items() if n != before[name] and name not in STAYS} == {}


async def _rows(db: Database) -> dict[str, int]:
    """How many rows each table has."""
    tables = await db.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    return {
        row["name"]: (await db.fetch(f"SELECT count(*) AS n FROM {row['name']}"))[0]["n"] for row in tables
    }
