"""Django: a backend for `django.tasks` (Django 6) and for the `django-tasks` package (Django 5).

```python
INSTALLED_APPS = [..., "shiftboss.frameworks.django"]
TASKS = {"default": {"BACKEND": "shiftboss.frameworks.django.ShiftbossBackend"}}
```

`manage.py migrate` then also applies Shiftboss's migrations, and `shiftboss worker
shiftboss.frameworks.django:app` runs the tasks.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "ShiftbossBackend": "backend",
    "app": "backend",
    "run": "backend",
    "close_connections": "connections",
    "kit": "connections",
}


def __getattr__(name: str) -> Any:
    """Import on first use: projects that declare tasks with an `App` need no `django-tasks`."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
