"""Prometheus metrics of AI calls, labelled by provider."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from shiftboss.db import Database
from shiftboss.extensions.ai.store import AIEngine

CIRCUITS = {"closed": 0, "half-open": 1, "open": 2}


async def calls(db: Database) -> list[Metric]:
    """Return calls, errors, tokens, cost, circuit and budget of each provider, and use of the cache."""
    made = CounterMetricFamily("ai_calls", "AI calls made", labels=["provider"])
    failed = CounterMetricFamily("ai_errors", "AI calls that failed", labels=["provider"])
    tokens = CounterMetricFamily("ai_tokens", "Tokens used by AI calls", labels=["provider", "kind"])
    cost = CounterMetricFamily("ai_cost_dollars", "Cost of AI calls in US dollars", labels=["provider"])
    circuit = GaugeMetricFamily(
        "ai_circuit_state", "Circuit: 0 closed, 1 half-open, 2 open", labels=["provider"]
    )
    left = GaugeMetricFamily(
        "ai_budget_left_dollars", "Unspent part of the daily budget", labels=["provider"]
    )
    used = GaugeMetricFamily("ai_budget_used_ratio", "Spent share of the daily budget", labels=["provider"])
    for row in await db.family(AIEngine).ai_totals():
        who = [row["provider"]]
        made.add_metric(who, row["calls"])
        failed.add_metric(who, row["errors"])
        tokens.add_metric([*who, "prompt"], row["prompt_tokens"])
        tokens.add_metric([*who, "completion"], row["completion_tokens"])
        cost.add_metric(who, float(row["cost"]))
        circuit.add_metric(who, CIRCUITS[row["circuit"]])
        if row["daily_budget"]:
            left.add_metric(who, float(row["daily_budget"] - row["spend_today"]))
            used.add_metric(who, float(row["spend_today"] / row["daily_budget"]))
    hits, misses = await db.family(AIEngine).ai_cache_totals()
    return [
        made, failed, tokens, cost, circuit, left, used,
        CounterMetricFamily("ai_cache_hits", "Lookups that the AI cache answered", value=hits),
        CounterMetricFamily("ai_cache_misses", "Lookups that the AI cache could not answer", value=misses),
    ]  # fmt: skip
