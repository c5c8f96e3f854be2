"""An application: task handlers that analyse journals."""

from shiftboss.extension import Command, Extension

extension = Extension(
    name="journal",
    package=__name__,
    schemas=("journal",),
    extra="ai",
    after=("ai",),
    families={"journal": f"{__name__}.store:Journal"},
    handlers=(f"{__name__}.handlers:handlers",),
    commands={"journal": Command(f"{__name__}.cli:app", "import, analyse, search and export journals", "ai")},
    pages=(f"{__name__}.page:PAGES",),
    routes=(f"{__name__}.api:router", f"{__name__}.transfer:router"),
)
