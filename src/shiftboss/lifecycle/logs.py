"""Logging of the commands to stderr: readable on a terminal, JSON lines otherwise."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

from shiftboss.extension import extensions
from shiftboss.log import LogEvent

# Libraries that log every request at level `info`.
CHATTY = ("httpx", "httpx2", "httpcore", "httpcore2", "urllib3", "asyncio")
COLORS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31"}


class _Stderr(logging.Handler):
    """Writes to the current `sys.stderr`, which may have been replaced or closed since the start."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None and not sys.stderr.closed:
            try:
                sys.stderr.write(self.format(record) + "\n")
                sys.stderr.flush()
            except OSError:
                self.handleError(record)


class _Format(logging.Formatter):
    def __init__(self, bound: dict[str, Any]) -> None:
        super().__init__()
        self._bound = bound

    def _parts(self, record: logging.LogRecord) -> tuple[str, str, str, dict[str, Any]]:
        event = record.msg
        text, fields = (
            (event.text, event.fields) if isinstance(event, LogEvent) else (record.getMessage(), {})
        )
        at = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
        return at, record.levelname.lower(), text, self._bound | fields

    def _traceback(self, record: logging.LogRecord) -> str | None:
        return self.formatException(record.exc_info) if record.exc_info else None


class JsonLines(_Format):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        at, level, text, fields = self._parts(record)
        line = fields | {"event": text, "level": level, "logger": record.name, "timestamp": at}
        if (traceback := self._traceback(record)) is not None:
            line["exception"] = traceback
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class Readable(_Format):
    """Coloured lines for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        at, level, text, fields = self._parts(record)
        shown = " ".join(f"\033[36m{name}\033[0m={value}" for name, value in fields.items())
        line = (
            f"\033[2m{at}\033[0m \033[{COLORS.get(level, '0')}m{level:<8}\033[0m {text:<30} {shown}".rstrip()
        )
        traceback = self._traceback(record)
        return line if traceback is None else f"{line}\n{traceback}"


def configured_level() -> str | None:
    """Return the level that `configure_logs` set in this process, or None if it was not called."""
    root = logging.getLogger()
    ours = next((one for one in root.handlers if isinstance(one, _Stderr)), None)
    return None if ours is None else logging.getLevelName(ours.level).lower()


def configure_logs(level: str = "info", **bound: Any) -> None:
    """Set up logging for a command of Shiftboss. The fields in `bound` are added to every line.

    `level` applies to stderr. The root logger passes `info` in any case, for the logs that tasks keep.
    """
    handler = _Stderr()
    handler.setLevel(level.upper())
    handler.setFormatter(Readable(bound) if sys.stderr.isatty() else JsonLines(bound))
    root = logging.getLogger()
    for former in [one for one in root.handlers if isinstance(one, _Stderr)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(min(handler.level, logging.INFO))
    for name in (*CHATTY, *(name for extension in extensions() for name in extension.loggers)):
        logging.getLogger(name).setLevel(max(logging.WARNING, handler.level))
