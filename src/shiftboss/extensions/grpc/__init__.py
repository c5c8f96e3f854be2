"""The coordinator: a gRPC service that assigns tasks to workers without a database, and its client."""

from shiftboss.extension import Command, Extension

extension = Extension(
    name="coordinator",
    package=__name__,
    extra="coordinator",
    settings={"coordinator": f"{__name__}.settings:CoordinatorSettings"},
    families={"fleet": f"{__name__}.store:Fleet"},
    commands={
        "coordinator": Command(
            f"{__name__}.cli:app", "assign tasks over gRPC; rescue, schedules, scaling", "coordinator"
        )
    },
    services=(f"{__name__}.up:start",),
    sources={"coordinator": f"{__name__}.source:source"},
    metrics=(f"{__name__}.metrics:coordinators",),
)
