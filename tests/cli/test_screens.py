"""Snapshots of the help and of the main screens. To accept a change: UPDATE_SNAPSHOTS=1 pytest tests/cli/test_screens.py"""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console, RenderableType

from shiftboss.cli import main
from shiftboss.cli.status import screen
from shiftboss.cli.top import Top
from shiftboss.db import Database
from shiftboss.operations import Operations

FOLDER = Path(__file__).parent / "snapshots"
DATA: dict[str, Any] = {
    "tasks": {
        "queued_tasks": 12,
        "running_tasks": 3,
        "completed_tasks": 4711,
        "failed_tasks": 2,
        "active_workers": 2,
    },
    "rate": {"per_second": 15.25, "at": datetime(2030, 1, 1, tzinfo=UTC)},
    "latency": {"p50_ms": 42.0, "avg_ms": 50.0, "max_ms": 900.0},
    "queues": [
        {
            "name": "default",
            "queued": 10,
            "running": 3,
            "oldest_seconds": 95.0,
            "workers": 2,
            "paused": False,
        },
        {"name": "mail", "queued": 2, "running": 0, "oldest_seconds": 7200.0, "workers": 1, "paused": True},
    ],
    "workers": [
        {
            "worker_id": f"host/worker:all:{number}",
            "health_status": health,
            "draining": False,
            "paused": number == 1,
            "resource_usage": {"running": 3 - number},
            "processed_today": 2000 * (1 - number),
            "error_rate": 0.01,
            "heartbeat_age_seconds": 1.5,
        }
        for number, health in enumerate(["HEALTHY", "HEALTHY"])
    ],
    "alerts": [{"severity": "warning", "message": "worker host/worker:all:9 has been silent for 400 s"}],
}


def drawn(what: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(what)
    text = cast("io.StringIO", console.file).getvalue()
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def matches(name: str, text: str) -> None:
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert text == path.read_text()


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    head, _, rest = capsys.readouterr().out.partition("Commands:\n")
    matches("help", head + rest.partition("\n\n")[2])


@pytest.mark.parametrize(
    "name", ["up", "submit", "status", "top", "tasks", "why", "queues", "doctor", "init"]
)
def test_help_of_a_command(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERMINAL_WIDTH", "100")
    assert main([name, "--help"]) == 0
    matches(f"help-{name}", "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) + "\n")


def test_status() -> None:
    matches("status", drawn(screen(DATA)))


def test_status_without_workers() -> None:
    matches("status-empty", drawn(screen(DATA | {"workers": [], "queues": [], "alerts": []})))


def test_top() -> None:
    matches("top", drawn(Top(cast("Database", None), cast("Operations", None), data=DATA, chosen=2).screen()))
