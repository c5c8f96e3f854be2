"""Applies SQL files: migrations once, functions and views again on every run."""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
from psycopg import errors

from shiftboss.db.connection import Connection
from shiftboss.db.required import Required
from shiftboss.db.sqlfiles import SqlFile
from shiftboss.model.errors import MigrationError

_DROP_FIRST = re.compile(r"DROP (?:FUNCTION|PROCEDURE|AGGREGATE|ROUTINE) .+\)")


class Applier:
    """Runs files in the transaction of a migration, and explains their errors.

    `foreign` are tables with our names that the database had before the first migration.
    """

    def __init__(self, conn: Connection, required: Required, foreign: Sequence[str] = ()) -> None:
        self._conn = conn
        self._required = required
        self._foreign = foreign

    async def migration(self, file: SqlFile) -> None:
        try:
            await self._run(file)
        except psycopg.Error as error:
            raise self._failure(file.name, error) from error

    async def repeatables(self, functions: Sequence[SqlFile], views: Sequence[SqlFile]) -> None:
        """Apply functions, then views. What cannot be replaced is dropped first, never with CASCADE."""
        names = [name for file in views for name in file.views]
        for file in self._required.possible(functions):
            await self._function(file, names)
        possible = self._required.possible(views)
        try:
            async with self._conn.transaction():
                for file in possible:
                    await self._run(file)
        except (errors.InvalidTableDefinition, errors.WrongObjectType, errors.UndefinedColumn):
            await self._drop_views(names)
            for file in possible:
                await self.migration(file)
        except psycopg.Error as error:
            raise self._failure("views", error) from error

    async def _function(self, file: SqlFile, views: Sequence[str]) -> None:
        """Apply one file, dropping each function whose signature changed, as PostgreSQL's hint suggests."""
        while True:
            try:
                async with self._conn.transaction():
                    await self._run(file)
                return
            except errors.InvalidFunctionDefinition as error:
                drop = _DROP_FIRST.search(error.diag.message_hint or "")
                if drop is None:
                    raise self._failure(file.name, error) from error
                await self._drop_views(views)
                await self._drop(drop[0])
            except psycopg.Error as error:
                raise self._failure(file.name, error) from error

    async def _drop_views(self, names: Sequence[str]) -> None:
        for name in reversed(names):
            await self._drop(f"DROP VIEW IF EXISTS {name}")

    async def _drop(self, statement: str) -> None:
        try:
            await self._conn.execute(statement.encode())
        except errors.DependentObjectsStillExist as error:
            raise MigrationError(
                f"{error.diag.message_primary}: {error.diag.message_detail}",
                hint="drop the dependent objects, run `shiftboss db migrate`, and create them again",
            ) from error

    async def _run(self, file: SqlFile) -> None:
        await self._conn.execute(self._required.path(file).encode())
        if file.sql.strip():
            await self._conn.execute(self._required.text(file).encode())

    def _failure(self, name: str, error: psycopg.Error) -> MigrationError:
        message = error.diag.message_primary or str(error)
        if self._foreign and (error.sqlstate or "").startswith("42"):
            names = ", ".join(f"public.{table}" for table in self._foreign)
            return MigrationError(
                f"{names} existed before and does not fit Shiftboss's schema: {message}",
                hint="use another database for Shiftboss, or rename that table; nothing was changed",
                sqlstate=error.sqlstate,
            )
        where = f" (at character {error.diag.statement_position})" if error.diag.statement_position else ""
        hint = error.diag.message_hint or error.diag.message_detail or "nothing was changed"
        return MigrationError(f"{name}{where}: {message}", hint=hint, sqlstate=error.sqlstate)
