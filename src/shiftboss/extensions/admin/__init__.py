"""The HTTP service: API, authentication, metrics, live events and the dashboard."""

from shiftboss.extension import Command, Extension, Option

extension = Extension(
    name="admin",
    package=__name__,
    extra="admin",
    extras={"admin": "fastapi"},
    settings={"admin": f"{__name__}.settings:AdminSettings"},
    commands={
        "admin": Command(f"{__name__}.cli:app", "the HTTP service: API, dashboard, metrics", "admin"),
        "token login": Command(f"{__name__}.cli:login", "print a login link for the dashboard", "admin"),
    },
    options={"up --port": Option("admin.port", "port of the dashboard", int, "-p")},
    loggers=("uvicorn",),
    services=(f"{__name__}.up:start",),
)
