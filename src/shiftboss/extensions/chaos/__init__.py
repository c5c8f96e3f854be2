"""The chaos runner: a fleet, tasks of every kind, faults at seeded random, and a check of every promise."""

from shiftboss.extension import Command, Extension

extension = Extension(
    name="chaos",
    package=__name__,
    extra="coordinator",
    after=("coordinator",),
    commands={"chaos": Command(f"{__name__}.cli:app", "break a fleet on purpose and check what it promises")},
)
