"""All duties of the leader."""

from __future__ import annotations

from functools import partial

from shiftboss.db import Database
from shiftboss.extension import contributions
from shiftboss.leader.alerts import Alarm
from shiftboss.leader.autoscaler import FleetScaler
from shiftboss.leader.election import Duty, Leader, leadership
from shiftboss.leader.pruner import Pruner
from shiftboss.leader.rescuer import Rescuer
from shiftboss.leader.schedules import fire_due
from shiftboss.model.settings import Settings

TICK_SECONDS = 0.5
SCALE_SECONDS = 1.0
SAMPLE_SECONDS = 15.0


def fleet_duties(db: Database, settings: Settings) -> list[Duty]:
    """Return the duties: rescue, prune, fire schedules, end waits, raise alerts, autoscale, take samples.

    The duties of extensions follow.
    """
    duties = Rescuer(db, settings.leader).duties() + Pruner(db, settings.leader).duties()
    duties.append(Duty("cron", TICK_SECONDS, partial(fire_due, db)))
    duties.append(Duty("waits", TICK_SECONDS, db.steps.wake_all_due))
    duties += Alarm(db, settings.alerts).duties()
    duties.append(Duty("autoscale", SCALE_SECONDS, FleetScaler(db)))
    duties.append(Duty("samples", SAMPLE_SECONDS, db.insights.fleet.sample_workers))
    return [*duties, *(duty for make in contributions("duties") for duty in make(db, settings))]


def candidate(db: Database, settings: Settings, eagerness: float = 1.0, *, name: str | None = None) -> Leader:
    """Return a service that stands for election. With many candidates, give each a lower `eagerness`."""
    lease = leadership(db, settings.leader.lease_seconds, name)
    return Leader(
        lease, fleet_duties(db.under(lease), settings), every=settings.leader.elect_seconds / eagerness
    )
