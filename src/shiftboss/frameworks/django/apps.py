"""The Django application: `manage.py migrate` also applies Shiftboss's migrations."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import connections
from django.db.models.signals import post_migrate

from shiftboss.frameworks.django.connections import url_of

BACKEND = "shiftboss.frameworks.django."


class ShiftbossConfig(AppConfig):  # type: ignore[misc]
    name = "shiftboss.frameworks.django"
    label = "shiftboss"

    def ready(self) -> None:
        post_migrate.connect(apply_migrations, sender=self, dispatch_uid="shiftboss")


def apply_migrations(using: str, verbosity: int = 1, **_: Any) -> None:
    """Migrate Shiftboss's schema in the database `using`, if tasks are enqueued there."""
    from shiftboss.db.migrate import migrate

    if using not in databases() or connections[using].vendor != "postgresql":
        return
    with ThreadPoolExecutor(1) as thread:  # an event loop may be running in this one
        done = thread.submit(asyncio.run, migrate(url_of(connections[using]))).result()
    if verbosity and done.applied:
        print(f"Shiftboss: applied {len(done.applied)} migrations to {using!r}")


def databases() -> set[str]:
    """Return the aliases of the databases with Shiftboss's tables: `default`, or those in TASKS."""
    ours = [one for one in getattr(settings, "TASKS", {}).values() if one["BACKEND"].startswith(BACKEND)]
    aliases = {one.get("OPTIONS", {}).get("database", "default") for one in ours}
    return {alias for alias in aliases if alias is not None} if ours else {"default"}
