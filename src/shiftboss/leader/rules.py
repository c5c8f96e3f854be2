"""The alert rules of the core and of extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.extension import contributions
from shiftboss.model.alert import Found, Rule

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import AlertSettings

#: A failure rate needs at least this many attempts in five minutes.
FEWEST = 20
_RATES = """SELECT task_type, sum(failed)::float8 / sum(completed + failed) AS rate FROM shiftboss.stats
    WHERE minute > shiftboss.now() - interval '6 minutes' GROUP BY task_type
    HAVING sum(completed + failed) >= %s AND sum(failed)::float8 / sum(completed + failed) > %s"""


async def old_queues(db: Database, threshold: float) -> list[Found]:
    return [
        Found(
            row["name"],
            f"the oldest task in queue {row['name']} has waited for {row['oldest_seconds']:.0f} s",
            "shiftboss queues list",
            row["oldest_seconds"],
        )
        for row in await db.insights.figures.queues()
        if row["oldest_seconds"] > threshold
    ]


async def failing_types(db: Database, threshold: float) -> list[Found]:
    return [
        Found(
            row["task_type"],
            f"{row['rate']:.0%} of the attempts of {row['task_type']} failed in the last five minutes",
            "shiftboss errors list --since 10m",
            row["rate"],
        )
        for row in await db.fetch(_RATES, [FEWEST, threshold])
    ]


async def failed_slots(db: Database, threshold: float) -> list[Found]:
    return [
        Found(row["component"], row["message"], f"shiftboss restart {row['component']}", 1.0)
        for row in await db.health.alerts()
        if row["alert"] == "worker_failed"
    ]


async def restarting_slots(db: Database, threshold: float) -> list[Found]:
    return [
        Found(
            slot["component"],
            f"{slot['component']} was restarted {slot['recent_restarts']} times in 5 minutes",
            f"shiftboss events --component {slot['component']}",
            slot["recent_restarts"],
        )
        for slot in await db.health.slots()
        if slot["recent_restarts"] > threshold
    ]


async def crashed_fleet(db: Database, threshold: float) -> list[Found]:
    return [
        Found("", row["message"], "shiftboss restart --all", 1.0)
        for row in await db.health.alerts()
        if row["alert"] == "all_workers_crashed"
    ]


async def no_leader(db: Database, threshold: float) -> list[Found]:
    if (await db.insights.figures.fleet())["led"]:
        return []
    message = (
        "the fleet has no leader: lost tasks are not rescued, schedules do not fire, nothing is pruned;"
        " start a worker (shiftboss worker module:app) or a supervisor, which becomes the leader"
    )
    return [Found("", message, "shiftboss events --kind leader.elected", 0.0)]


_FAILED = 'sum by (task_type) (rate(worker_tasks_processed_total{status="failed"}[5m]))'
_ALL = "sum by (task_type) (rate(worker_tasks_processed_total[5m]))"
_BROKEN = 'sum(workers_by_status{status=~"crashed|failed"})'

CORE = (
    Rule(
        name="queue_too_old",
        summary="The oldest task in a queue waits too long",
        threshold=600,
        find=old_queues,
        expression="max by (queue) (queue_oldest_seconds) > $threshold",
        panel="max by (queue) (queue_oldest_seconds)",
        unit="s",
    ),
    Rule(
        name="failure_rate",
        summary="Many attempts of a task type fail",
        threshold=0.5,
        find=failing_types,
        expression=f"{_FAILED} / {_ALL} > $threshold and {_ALL} * 300 >= {FEWEST}",
        panel=f"{_FAILED} / {_ALL}",
        unit="percentunit",
    ),
    Rule(
        name="worker_failed",
        summary="A slot has failed and is no longer restarted",
        severity="critical",
        threshold=0,
        find=failed_slots,
        expression='max(workers_by_status{status="failed"}) > $threshold',
        lasting="0m",
        panel="max by (status) (workers_by_status)",
    ),
    Rule(
        name="worker_restarts",
        summary="A slot is restarted repeatedly",
        threshold=3,
        find=restarting_slots,
        expression="increase(worker_restart_count[5m]) > $threshold",
        lasting="0m",
        panel="increase(worker_restart_count[5m])",
    ),
    Rule(
        name="all_workers_crashed",
        summary="Every slot has crashed or failed",
        severity="critical",
        threshold=1,
        find=crashed_fleet,
        expression=f"{_BROKEN} / (sum(workers_by_status) > 0) >= $threshold",
        panel=f"{_BROKEN} / (sum(workers_by_status) > 0)",
        unit="percentunit",
    ),
    Rule(
        name="nobody_leads",
        summary="The fleet has no leader",
        severity="critical",
        threshold=1,
        find=no_leader,
        expression="max(leader_present) < $threshold",
        panel="max(leader_present)",
    ),
)


def all_rules() -> list[Rule]:
    """Return the core's rules, then those of extensions."""
    return [*CORE, *(rule for rules in contributions("rules") for rule in rules)]


def enabled_rules(settings: AlertSettings) -> list[tuple[Rule, float]]:
    """Return the rules that are not switched off, with their thresholds."""
    on = [rule for rule in all_rules() if rule.name not in settings.off]
    return [(rule, settings.thresholds.get(rule.name, rule.threshold)) for rule in on]
