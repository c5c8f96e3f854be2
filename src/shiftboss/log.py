"""Logs of a library: standard loggers below `shiftboss`, and fields beside each message.

```python
log = get_logger(__name__)
log.warning("workers were lost", workers=2, tasks=7)
```

Nothing here configures logging or prints. The commands of Shiftboss do that, in `shiftboss.lifecycle.logs`.
"""

from __future__ import annotations

import logging
from typing import Any

logging.getLogger("shiftboss").addHandler(logging.NullHandler())


class Event:
    """A message and its fields: plain formatters show both as text, ours read the fields."""

    __slots__ = ("fields", "text")

    def __init__(self, text: str, fields: dict[str, Any]) -> None:
        self.text, self.fields = text, fields

    def __str__(self) -> str:
        return " ".join([self.text, *(f"{name}={value!r}" for name, value in self.fields.items())])


class Log:
    """A logger whose keyword arguments are the fields of the message."""

    def __init__(self, logger: logging.Logger, fields: dict[str, Any] | None = None) -> None:
        self._logger = logger
        self._fields = fields or {}

    def bind(self, **fields: Any) -> Log:
        """The same logger with these fields on every message."""
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
        """An error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, text, args, fields, traceback=True)

    def _write(
        self, level: int, text: str, args: tuple[object, ...], fields: dict[str, Any], traceback: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            event = Event(text % args if args else text, self._fields | fields)
            self._logger.log(level, event, exc_info=traceback, stacklevel=3)


def get_logger(name: str) -> Log:
    """The logger of a module: `get_logger(__name__)`."""
    return Log(logging.getLogger(name))
