"""Notes: an extension that brings a table, a task, a setting, a command, a route, a page and a finding."""

from shiftboss.extension import Command, Extension

extension = Extension(
    name="notes",
    package=__name__,
    settings={"notes": f"{__name__}.settings:NotesSettings"},
    families={"notes": f"{__name__}.store:Notes"},
    handlers=(f"{__name__}.tasks:handlers",),
    commands={"notes": Command(f"{__name__}.cli:app", "notes: add, list")},
    routes=(f"{__name__}.api:router",),
    pages=(f"{__name__}.page:PAGES",),
    findings=(f"{__name__}.findings:uncounted",),
)
