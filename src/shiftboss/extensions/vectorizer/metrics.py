"""Prometheus metrics of vectorizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from shiftboss.extensions.vectorizer.store import Vectorizers

if TYPE_CHECKING:
    from shiftboss.db import Database


async def vectorizers(db: Database) -> list[Metric]:
    """How far each vectorizer is behind; of rows that wait, at most 10,000 are counted."""
    pending = GaugeMetricFamily("vectorizer_pending", "Rows that wait, up to 10000", labels=["vectorizer"])
    lag = GaugeMetricFamily(
        "vectorizer_lag_seconds", "How long the first waiting row has been due", labels=["vectorizer"]
    )
    for row in await db.family(Vectorizers).lag():
        pending.add_metric([row["name"]], row["pending"])
        lag.add_metric([row["name"]], row["lag_seconds"])
    return [pending, lag]
