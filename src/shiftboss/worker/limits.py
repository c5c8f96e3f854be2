"""Resource usage of this process, and its limits for claiming."""

from __future__ import annotations

from typing import Any

import psutil

from shiftboss.model.settings import WorkerSettings

MB = 1024 * 1024


class ProcessLimits:
    """Measures this process. Cheap enough to run before every claim."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._process = psutil.Process()
        self._process.cpu_percent()

    def usage(self) -> dict[str, Any]:
        """Return the values that a heartbeat sends."""
        with self._process.oneshot():
            return {
                "cpu_percent": self._process.cpu_percent(),
                "memory_mb": self._process.memory_info().rss // MB,
                "thread_count": self._process.num_threads(),
            }

    def exceeded(self) -> str | None:
        """Return why the worker must not claim tasks now, or None."""
        most = self._settings.max_memory_mb
        if most is not None and (used := self._process.memory_info().rss // MB) > most:
            return f"memory: {used} MB of {most} MB"
        share = self._settings.max_cpu_percent
        if share is not None and (busy := psutil.cpu_percent()) > share:
            return f"cpu: {busy:.0f} % of {share:.0f} %"
        return None
