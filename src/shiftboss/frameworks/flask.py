"""A Flask extension."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from flask import Flask, jsonify

from shiftboss.app import App, Call
from shiftboss.app.sync import SyncHandle
from shiftboss.model.errors import NotFound

R = TypeVar("R")


class Shiftboss:
    """The extension: `Shiftboss(app, flask)`, or `tasks = Shiftboss(app)` and `tasks.init_app(flask)`.

    A task that does not exist results in a 404 response. After a fork, as with gunicorn's `--preload`, each
    process opens its own connections.
    """

    def __init__(self, app: App, flask: Flask | None = None) -> None:
        self.app = app
        os.register_at_fork(after_in_child=self._forget)
        if flask is not None:
            self.init_app(flask)

    def init_app(self, flask: Flask) -> None:
        flask.extensions["shiftboss"] = self
        flask.register_error_handler(NotFound, _not_found)

    def enqueue(self, call: Call[R], *, conn: Any = None) -> SyncHandle[R]:
        """Enqueue a call. With `conn`, such as `db.session`, enqueue it in that transaction."""
        # Flask-SQLAlchemy provides a proxy of the session; calling it returns the session itself.
        session: Callable[[], Any] | None = conn if callable(conn) and hasattr(conn, "registry") else None
        return self.app.sync.enqueue(call, conn=session() if session is not None else conn)

    def handle(self, id: UUID | str) -> SyncHandle[Any]:
        """Return the handle of a task. Raises NotFound."""
        handle = self.app.sync.handle(id)
        handle.status()
        return handle

    def _forget(self) -> None:
        """Drop the background thread and connections, which belong to the parent process."""
        self.app.__dict__.pop("sync", None)


def _not_found(error: NotFound) -> Any:
    return jsonify(error=error.message), 404
