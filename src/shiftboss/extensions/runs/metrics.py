"""Prometheus metrics of runs."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily, Metric

from shiftboss.db import Database
from shiftboss.extensions.runs.store import Runs


async def runs(db: Database) -> list[Metric]:
    active = await db.family(Runs).active()
    failed = GaugeMetricFamily(
        "run_failed", "1 if the latest completed run of the bot failed", labels=["bot"]
    )
    for row in await db.family(Runs).latest_ended():
        failed.add_metric([row["bot"]], int(row["status"] == "failed"))
    return [GaugeMetricFamily("active_runs", "Runs that are pending or running", value=len(active)), failed]
