"""`manage.py shiftboss …`: every command of Shiftboss, on the project's database."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand

from shiftboss.cli import main


class Command(BaseCommand):  # type: ignore[misc]
    help = "Runs a command of Shiftboss on the project's database, such as `shiftboss status`."

    def run_from_argv(self, argv: list[str]) -> None:
        sys.exit(main(argv[2:]))
