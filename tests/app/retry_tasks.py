"""Tasks with retry rules that run in a child process, which must be importable."""

from __future__ import annotations

from shiftboss import App, Retry

app = App("child")


@app.task(mode="process", give_up_on=KeyError, backoff=lambda attempt, error: 60 * attempt)
def in_child(kind: str) -> None:
    raise {"key": KeyError, "value": ValueError}[kind]("no")


@app.task(mode="process")
def asks_from_child() -> None:
    raise Retry("busy", after=90)
