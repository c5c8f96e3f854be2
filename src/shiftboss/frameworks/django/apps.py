"""The Django application: Shiftboss uses the project's database, and `manage.py migrate` migrates both."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections
from django.db.models.signals import post_migrate

from shiftboss.frameworks.django.connections import url_of

BACKEND = "shiftboss.frameworks.django."
VARIABLE = "SHIFTBOSS_DATABASE_URL"


class ShiftbossConfig(AppConfig):  # type: ignore[misc]
    name = "shiftboss.frameworks.django"
    label = "shiftboss"
    #: The URL that this application has set as Shiftboss's.
    url: str | None = None

    def ready(self) -> None:
        post_migrate.connect(self.apply_migrations, sender=self, dispatch_uid="shiftboss")
        checks.register(check_databases)
        self.share_database()

    def share_database(self) -> None:
        """Make the project's database Shiftboss's as well, unless Shiftboss's settings name another one.

        It is set in the environment, for child processes.
        """
        from shiftboss.model.settings import Settings

        shared = [alias for alias in sorted(databases(), key="default".__ne__) if is_postgresql(alias)]
        if not shared:
            return
        url = url_of(connections[shared[0]])
        if Settings.load().database.url in (None, self.url, url):
            os.environ[VARIABLE] = self.url = url

    def apply_migrations(self, using: str, verbosity: int = 1, **_: Any) -> None:
        """Migrate Shiftboss's schema in the database `using`, if tasks are enqueued there."""
        from shiftboss.db.migrate import migrate

        if using not in databases() or not is_postgresql(using):
            return
        self.share_database()  # by now, Django's test runner has replaced the database by that for tests
        with ThreadPoolExecutor(1) as thread:  # an event loop may be running in this one
            done = thread.submit(asyncio.run, migrate(url_of(connections[using]))).result()
        if verbosity and done.applied:
            print(f"Shiftboss: applied {len(done.applied)} migration(s) to {using!r}")


def backends() -> dict[str, dict[str, Any]]:
    """Return the backends in TASKS that are Shiftboss's."""
    given: dict[str, dict[str, Any]] = getattr(settings, "TASKS", {})
    return {alias: one for alias, one in given.items() if one["BACKEND"].startswith(BACKEND)}


def databases() -> set[str]:
    """Return the aliases of the databases with Shiftboss's tables: `default`, or those in TASKS."""
    aliases = {one.get("OPTIONS", {}).get("database", "default") for one in backends().values()}
    return {alias for alias in aliases if alias is not None} if backends() else {"default"}


def is_postgresql(alias: str) -> bool:
    return alias in connections and connections[alias].vendor == "postgresql"


def check_databases(**_: Any) -> Iterator[checks.CheckMessage]:
    """Check that every backend enqueues in a PostgreSQL database."""
    for name, one in backends().items():
        alias = one.get("OPTIONS", {}).get("database", "default")
        if alias is not None and not is_postgresql(alias):
            yield checks.Error(
                f"The task backend {name!r} enqueues in the database {alias!r}, which is not PostgreSQL.",
                hint='Name a PostgreSQL database of DATABASES: "OPTIONS": {"database": "alias"}.',
                id="shiftboss.E001",
            )
