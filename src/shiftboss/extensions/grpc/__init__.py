"""The coordinator: a gRPC service that assigns tasks to workers without a database, and its client."""

from shiftboss.extension import Command, Extension, Option

extension = Extension(
    name="coordinator",
    package=__name__,
    extra="coordinator",
    extras={"coordinator": "grpc"},
    settings={"coordinator": f"{__name__}.settings:CoordinatorSettings"},
    families={"fleet": f"{__name__}.store:Fleet"},
    commands={
        "coordinator": Command(
            f"{__name__}.cli:app", "assign tasks over gRPC; rescue, schedules, scaling", "coordinator"
        )
    },
    options={
        "worker --coordinator": Option(
            "coordinator.addresses",
            "receive tasks from this HOST:PORT instead of the database; repeatable",
            repeatable=True,
        )
    },
    # gRPC's fork handlers crash some children between fork and exec, and no command uses gRPC after a fork.
    environment={"GRPC_ENABLE_FORK_SUPPORT": "0"},
    loggers=("grpc",),
    services=(f"{__name__}.up:start",),
    sources={"coordinator.addresses": f"{__name__}.source:source"},
    metrics=(f"{__name__}.metrics:coordinators",),
)
