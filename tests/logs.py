"""What was logged while a block ran."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shiftboss.log import LogEvent


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.entries: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = record.msg.fields if isinstance(record.msg, LogEvent) else {}
        text = record.msg.text if isinstance(record.msg, LogEvent) else record.getMessage()
        self.entries.append(fields | {"event": text, "log_level": record.levelname.lower()})


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """A list that grows with every message of ours: its fields, `event` and `log_level`."""
    logger, collector = logging.getLogger("shiftboss"), _Collector()
    level = logger.level
    logger.addHandler(collector)
    logger.setLevel(logging.DEBUG)
    try:
        yield collector.entries
    finally:
        logger.removeHandler(collector)
        logger.setLevel(level)
