"""`shiftboss alerts`: firing alerts, their rules, and files for Prometheus and Grafana."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.output import Columns, Json, Limit, ask, say_json, show_rows
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.model.alert import Rule

app = typer.Typer(
    help="Alerts: list, rules, prometheus, grafana.", add_completion=False, no_args_is_help=True
)

COLUMNS: Columns = {
    "since": "started_at",
    "until": "ended_at",
    "severity": "severity",
    "rule": "rule",
    "what": "message",
    "do": "advice",
}
RULES: Columns = {"rule": "name", "severity": "severity", "threshold": "threshold", "what": "summary"}


@app.command("list")
def list_(
    ended: Annotated[bool, typer.Option("--all", help="include alerts that have ended")] = False,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List the alerts that are firing: since when, what is wrong, and which command helps."""
    rows = ask(lambda db: db.alerts.latest(limit) if ended else db.alerts.firing())
    show_rows(rows, COLUMNS, as_json=as_json, empty="no alerts")


@app.command()
def rules(as_json: Json = False) -> None:
    """List the rules and their thresholds. Change a threshold with the setting `alerts.thresholds`."""
    shown = [
        {"name": rule.name, "severity": rule.severity, "threshold": threshold, "summary": rule.summary}
        for rule, threshold in _rules()
    ]
    show_rows(shown, RULES, as_json=as_json)


@app.command()
def prometheus() -> None:
    """Print a Prometheus rules file with the same rules and thresholds, as JSON, which is valid YAML.

    Example: shiftboss alerts prometheus > /etc/prometheus/shiftboss.rules.yml
    """
    from shiftboss.leader.boards import prometheus_rules

    say_json(prometheus_rules(_rules()))


@app.command()
def grafana() -> None:
    """Print a Grafana dashboard to import.

    Example: shiftboss alerts grafana > shiftboss.json
    """
    from shiftboss.leader.boards import grafana_board

    say_json(grafana_board(_rules()))


def _rules() -> list[tuple[Rule, float]]:
    """Return the enabled rules with their thresholds."""
    from shiftboss.leader.rules import all_rules, enabled_rules
    from shiftboss.model.settings import Settings

    settings = Settings.load().alerts
    unknown = {*settings.thresholds, *settings.off} - {rule.name for rule in all_rules()}
    if unknown:
        raise UsageError(
            f"alerts: there is no rule {min(unknown)!r}", hint="`shiftboss alerts rules` lists them"
        )
    return enabled_rules(settings)
