"""The public Python API: apps, tasks, handles, graphs and a synchronous facade.

```python
from shiftboss import App

app = App("shop")

@app.task()
async def greet(name: str) -> str:
    return f"Hello, {name}"
```

`shiftboss.app:fleet` is the app that contains the tasks of all installed extensions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from shiftboss.app.app import App
from shiftboss.app.calls import Call, Calls, chain, group, parents
from shiftboss.app.handle import Group, Handle
from shiftboss.app.task import AsyncTask, PlainTask, Task
from shiftboss.extension import contributions

__all__ = [
    "App",
    "AsyncTask",
    "Call",
    "Calls",
    "Group",
    "Handle",
    "PlainTask",
    "Task",
    "chain",
    "group",
    "parents",
]


@cache
def _fleet() -> App:
    app = App("shiftboss")
    for handlers in contributions("handlers"):
        app.include(handlers)
    return app


def __getattr__(name: str) -> Any:
    if name != "fleet":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _fleet()
