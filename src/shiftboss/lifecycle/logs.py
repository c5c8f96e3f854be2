"""Logs: readable on a terminal, JSON lines otherwise, always on stderr."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any, TextIO, cast

import structlog


class _Stderr(io.TextIOBase):
    """Whatever stderr is when a line is written: it may have been replaced or closed since."""

    def write(self, text: str) -> int:
        return 0 if sys.stderr.closed else sys.stderr.write(text)

    def flush(self) -> None:
        if not sys.stderr.closed:
            sys.stderr.flush()


def configure_logs(level: str = "info", **bound: Any) -> None:
    """Set up structlog for this process; `bound` stands on every line."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if sys.stderr.isatty():
        last: list[Any] = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=shared + last,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
    )
    structlog.contextvars.bind_contextvars(**bound)
