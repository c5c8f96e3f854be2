"""Prometheus metrics of coordinators."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily, Metric

from shiftboss.db import Database
from shiftboss.extensions.grpc.store import FleetStore

FIGURES = (("scheduling_seconds", "scheduling"), ("claim_seconds", "claim"))


async def coordinators(db: Database) -> list[Metric]:
    """Return the latencies of scheduling and claiming per coordinator."""
    rows = await db.family(FleetStore).coordinators()
    families: list[Metric] = []
    for name, figure in FIGURES:
        family = GaugeMetricFamily(
            f"coordinator_{name}", f"Latency of {figure} in a pass", labels=["coordinator", "quantile"]
        )
        for row in rows:
            for quantile, key in (("0.5", "p50"), ("0.99", "p99")):
                family.add_metric([row["name"], quantile], row["figures"].get(f"{figure}_{key}_seconds", 0.0))
        families.append(family)
    return families
