"""Standard loggers below `shiftboss`, with fields for each message.

```python
log = get_logger(__name__)
log.warning("workers lost", workers=2, tasks=7)
```

Nothing here configures logging. Only the commands do, with `shiftboss.lifecycle.logs`.
"""

from __future__ import annotations

import logging
from typing import Any

logging.getLogger("shiftboss").addHandler(logging.NullHandler())


class LogEvent:
    """A message and its fields. Any formatter shows both as text; those of Shiftboss use the fields."""

    __slots__ = ("fields", "text")

    def __init__(self, text: str, fields: dict[str, Any]) -> None:
        self.text, self.fields = text, fields

    def __str__(self) -> str:
        return " ".join([self.text, *(f"{name}={value!r}" for name, value in self.fields.items())])


class Log:
    """A logger that takes the fields of a message as keyword arguments."""

    def __init__(self, logger: logging.Logger, fields: dict[str, Any] | None = None) -> None:
        self._logger = logger
        self._fields = fields or {}

    def bind(self, **fields: Any) -> Log:
        """Return a logger that adds these fields to every message."""
        return Log(self._logger, self._fields | fields)

    def debug(self, text: str, *args: object, **fields: Any) -> None:
        self._write(logging.DEBUG, text, args, fields)

    def info(self, text: str, *args: object, **fields: Any) -> None:
        self._write(logging.INFO, text, args, fields)

    def warning(self, text: str, *args: object, **fields: Any) -> None:
        self._write(logging.WARNING, text, args, fields)

    def error(self, text: str, *args: object, **fields: Any) -> None:
        self._write(logging.ERROR, text, args, fields)

    def exception(self, text: str, *args: object, **fields: Any) -> None:
        """Log an error with the traceback of the current exception."""
        self._write(logging.ERROR, text, args, fields, traceback=True)

    def _write(
        self, level: int, text: str, args: tuple[object, ...], fields: dict[str, Any], traceback: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            event = LogEvent(text % args if args else text, self._fields | fields)
            self._logger.log(level, event, exc_info=traceback, stacklevel=3)


def get_logger(name: str) -> Log:
    """Return the logger of a module: `get_logger(__name__)`."""
    return Log(logging.getLogger(name))
