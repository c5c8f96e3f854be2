"""Flask: an extension object with an app behind it."""

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
    """`tasks = Shiftboss(app)`, then `tasks.init_app(flask)`; or both at once with `Shiftboss(app, flask)`.

    A task that does not exist is answered with 404. After a fork, as with gunicorn's `--preload`, each
    process opens connections of its own.
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
        """Put a call into the queue; with `conn`, such as `db.session`, in its transaction."""
        # Flask-SQLAlchemy gives a proxy of the session; calling it returns the session itself.
        session: Callable[[], Any] | None = conn if callable(conn) and hasattr(conn, "registry") else None
        return self.app.sync.enqueue(call, conn=session() if session is not None else conn)

    def handle(self, id: UUID | str) -> SyncHandle[Any]:
        """The handle of a task; raises NotFound if there is none."""
        handle = self.app.sync.handle(id)
        handle.status()
        return handle

    def _forget(self) -> None:
        """The thread and the connections stayed with the parent process."""
        self.app.__dict__.pop("sync", None)


def _not_found(error: NotFound) -> Any:
    return jsonify(error=error.message), 404
