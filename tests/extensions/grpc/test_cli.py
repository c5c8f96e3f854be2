"""The commands of the coordinator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shiftboss.cli import main


@pytest.fixture
def command(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)

    def run(*words: str, code: int = 0) -> str:
        assert main(list(words)) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


def test_schedules(command) -> None:  # type: ignore[no-untyped-def]
    words = ("0 3 * * *", "cleanup", "--params", '{"days": 7}', "-z", "Europe/Madrid", "-q", "slow")
    words += ("--tenant", "acme", "--requires", '{"gpu": true}')
    assert "nightly: next at" in command("schedule", "add", "nightly", *words)
    [row] = json.loads(command("schedule", "list", "--json"))
    assert row["task"] == {
        "task_type": "cleanup",
        "params": {"days": 7},
        "queue": "slow",
        "tenant": "acme",
        "requires": {"gpu": True},
    }
    command("schedule", "pause", "nightly")
    assert "\tpaused\t" in command("schedule", "list")
    command("schedule", "resume", "nightly")
    command("schedule", "remove", "nightly")
    assert "no schedule" in command("schedule", "remove", "nightly", code=3)
    assert "no schedule" in command("schedule", "pause", "nightly", code=3)


def test_bad_schedules_change_nothing(command) -> None:  # type: ignore[no-untyped-def]
    assert "cron expression" in command("schedule", "add", "x", "often", "cleanup", code=2)
    assert "not JSON" in command("schedule", "add", "x", "* * * * *", "c", "--params", "{", code=2)
    wings = ("--requires", '{"wings": 2}')
    assert "unknown key" in command("schedule", "add", "x", "* * * * *", "c", *wings, code=4)
    assert "time zone" in command("schedule", "add", "x", "* * * * *", "c", "-z", "Nowhere", code=2)
    assert json.loads(command("schedule", "list", "--json")) == []


def test_scale(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert "no supervised queues" in command("scale", "8", code=2)
    assert "number of workers is missing" in command("scale", code=2)
    assert "not queue=count" in command("scale", "many", code=2)
    picture = tmp_path / "scale.png"
    said = command("scale", "--simulate", str(picture), "--minutes", "10", "--pattern", "ramp")
    assert "on average" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_autoscale(command) -> None:  # type: ignore[no-untyped-def]
    assert "no queue is autoscaled" in command("scale", "--list")
    said = command("scale", "emails", "--auto", "--set", "max_workers=20", "--set", "cooldown_seconds=1.5")
    assert said.startswith("emails: autoscaled; min_workers=1 max_workers=20 ")
    assert "cooldown_seconds=1.5" in said
    assert command("scale", "emails", "--no-auto").startswith(
        "emails: not autoscaled; min_workers=1 max_workers=20"
    )
    assert command("scale", "--list").startswith("emails: not autoscaled")
    assert "the queue is missing" in command("scale", "--auto", code=2)
    assert "not key=value" in command("scale", "emails", "--set", "max_workers", code=2)
    assert "max_workers" in command("scale", "emails", "--set", "max_workers=none", code=2)
    assert "the settings are" in command("scale", "emails", "--set", "speed=1", code=2)


def test_health(command) -> None:  # type: ignore[no-untyped-def]
    assert json.loads(command("health", "--json")) == []
    assert "no worker 'ghost'" in command("health", "ghost", code=3)
