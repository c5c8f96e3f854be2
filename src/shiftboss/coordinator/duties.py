"""All that the leader does for the fleet."""

from __future__ import annotations

from functools import partial

from shiftboss.coordinator.autoscaler import Autoscaler, SupervisorLauncher
from shiftboss.coordinator.cron import fire_due
from shiftboss.coordinator.leader import Duty, Leader
from shiftboss.coordinator.pruner import Pruner
from shiftboss.coordinator.rescuer import Rescuer
from shiftboss.db import Database
from shiftboss.model.settings import Settings

TICK_SECONDS = 0.5


def fleet_duties(db: Database, settings: Settings) -> list[Duty]:
    """Rescue, prune, fire schedules, and scale where that is wanted."""
    duties = Rescuer(db, settings.leader).duties() + Pruner(db, settings.leader).duties()
    duties.append(Duty("cron", TICK_SECONDS, partial(fire_due, db)))
    scaling = settings.autoscale
    if scaling.enabled:
        scaler = Autoscaler(db, SupervisorLauncher(db, scaling.queue), scaling)
        duties.append(Duty("autoscale", scaling.every_seconds, scaler))
    return duties


def candidate(db: Database, settings: Settings, eagerness: float = 1.0) -> Leader:
    """Somebody who would do all that. Where candidates may be many, each had better be less eager."""
    return Leader(
        db,
        fleet_duties(db, settings),
        every=settings.leader.elect_seconds / eagerness,
        direct_url=settings.database.direct_url,
    )
