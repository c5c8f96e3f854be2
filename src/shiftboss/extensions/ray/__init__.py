"""Runs handlers with `engine="ray"` as Ray tasks with the resources that they request."""

from shiftboss.extension import Extension

extension = Extension(
    name="ray",
    package=__name__,
    extra="ray",
    settings={"ray": f"{__name__}.settings:RaySettings"},
    engines={"ray": f"{__name__}.engine:connect"},
)
