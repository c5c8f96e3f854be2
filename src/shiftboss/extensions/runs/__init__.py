"""Tracked runs: the table `worker_runs`, its API and its commands."""

from shiftboss.extension import Command, Extension

extension = Extension(
    name="runs",
    package=__name__,
    tables=("worker_runs",),
    extra="admin",
    families={"runs": f"{__name__}.store:Runs"},
    commands={
        "runs": Command(f"{__name__}.cli:app", "start, list, show, watch, cancel and retry runs of bots")
    },
    cards=(f"{__name__}.card:CARD",),
    routes=(f"{__name__}.api:router",),
    snapshot={"current_runs": f"{__name__}.snapshot:current_runs"},
    changes={"shiftboss_runs": f"{__name__}.snapshot:changed_runs"},
    rules=(f"{__name__}.rules:RULES",),
    metrics=(f"{__name__}.metrics:runs",),
)
