"""A task in a child process, for middleware around it."""

from __future__ import annotations

from shiftboss import App

app = App("far")


@app.task(mode="process")
def halve(n: int) -> float:
    return n / (n - 1) if n == 1 else n / 2
