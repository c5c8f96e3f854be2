"""The alert rules as a Prometheus rules file and a Grafana dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftboss.model.alert import Rule

#: Panels without an alert rule: title, expression, unit.
PANELS = (
    ("Attempts per second", "sum by (status) (rate(worker_tasks_processed_total[5m]))", "ops"),
    ("Queue depth", "max by (queue) (queue_depth)", "short"),
    (
        "Duration, 95th percentile",
        "histogram_quantile(0.95,"
        " sum by (le, task_type) (rate(worker_processing_duration_seconds_bucket[5m])))",
        "s",
    ),
    ("Active workers", "max(active_workers_total)", "short"),
)


def prometheus_rules(rules: Sequence[tuple[Rule, float]]) -> dict[str, Any]:
    """Return the content of a rules file, for rules with their thresholds. As JSON it is valid YAML."""
    return {
        "groups": [
            {
                "name": "shiftboss",
                "rules": [
                    {
                        "alert": "Shiftboss" + rule.name.title().replace("_", ""),
                        "expr": rule.expression.replace("$threshold", f"{threshold:g}"),
                        "for": rule.lasting,
                        "labels": {"severity": rule.severity},
                        "annotations": {"summary": rule.summary, "description": "value: {{ $value }}"},
                    }
                    for rule, threshold in rules
                ],
            }
        ]
    }


def grafana_board(rules: Sequence[tuple[Rule, float]]) -> dict[str, Any]:
    """Return a dashboard to import. Its panels show the thresholds of the rules."""
    panels = [_panel(title, expression, unit) for title, expression, unit in PANELS]
    panels += [_panel(rule.summary, rule.panel, rule.unit, threshold) for rule, threshold in rules]
    for number, panel in enumerate(panels):
        place = {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8}
        panel |= {"id": number + 1, "gridPos": place}
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "shiftboss",
        "title": "Shiftboss",
        "tags": ["shiftboss"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def _panel(title: str, expression: str, unit: str, threshold: float | None = None) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if threshold is not None:
        steps.append({"color": "red", "value": threshold})
    custom = {"thresholdsStyle": {"mode": "off" if threshold is None else "dashed"}}
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "targets": [{"refId": "A", "datasource": source, "expr": expression}],
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": custom, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
    }
