"""The chaos runner starts a fleet, injects random faults from a seed, and checks every guarantee."""

from shiftboss.extension import Command, Extension

extension = Extension(
    name="chaos",
    package=__name__,
    extra="coordinator",
    after=("coordinator",),
    commands={"chaos": Command(f"{__name__}.cli:app", "inject faults into a fleet and check its guarantees")},
)
