"""Prometheus metrics of vectorizers."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily, Metric

from shiftboss.db import Database
from shiftboss.extensions.vectorizer.store import Vectorizers


async def vectorizers(db: Database) -> list[Metric]:
    """Return the pending rows (up to 10,000) and the lag of each vectorizer."""
    pending = GaugeMetricFamily("vectorizer_pending", "Pending rows, up to 10000", labels=["vectorizer"])
    lag = GaugeMetricFamily(
        "vectorizer_lag_seconds", "Seconds since the oldest pending row became due", labels=["vectorizer"]
    )
    for row in await db.family(Vectorizers).lag():
        pending.add_metric([row["name"]], row["pending"])
        lag.add_metric([row["name"]], row["lag_seconds"])
    return [pending, lag]
