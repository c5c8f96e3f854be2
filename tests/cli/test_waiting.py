"""Commands that wait for a task say what it waits for, and end after --timeout or with Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shiftboss.cli import commands, load_command, main, waiting
from shiftboss.model.task import NewTask
from tests.cli.test_commands import enqueue

WAITING = {
    "submit --wait": ("submit", "none", "--wait"),
    "logs --follow": ("logs", "ID", "--follow"),
    "tasks stream": ("tasks", "stream", "ID"),
    "journal import --wait": ("journal", "import", "journal.txt", "--user", "ann", "--wait"),
    "journal process --wait": ("journal", "process", "--wait"),
    "journal demo": ("journal", "demo"),
    "runs start --watch": ("runs", "start", "verify", "--watch"),
    "runs watch": ("runs", "watch"),
}


@pytest.fixture
def line(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the words of a command that waits for a task for which there is no worker."""
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setattr(waiting, "PATIENCE", 0.05)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "journal.txt").write_text("A good day.")

    def prepare(name: str) -> list[str]:
        [id] = enqueue(database_url, NewTask(task_type="none"))
        if name == "runs watch":
            assert main(["runs", "start", "verify"]) == 0
        if name == "journal process --wait":
            assert main(["journal", "import", "journal.txt", "--user", "ann", "--no-process"]) == 0
        return [str(id) if word == "ID" else word for word in WAITING[name]]

    return prepare


def test_every_command_that_waits_for_a_task_is_tried() -> None:
    found = set()
    for name, command in commands().items():
        top = load_command(name, command)
        for verb, leaf in getattr(top, "commands", {"": top}).items():
            if any("--timeout" in option.opts for option in leaf.params):
                found.add(f"{name} {verb}".strip())
    assert found - {"ai complete"} == {name.partition(" --")[0] for name in WAITING}


@pytest.mark.parametrize("name", WAITING)
def test_a_wait_says_why_and_ends(
    name: str, line: Callable[[str], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    words = line(name)
    capfd.readouterr()
    assert main([*words, "--timeout", "2"]) == 9
    said = capfd.readouterr().err
    assert "waiting for task" in said
    assert "start a worker that has a handler for" in said
    assert said.count("waiting for task") == 1, "a reason is given once"
    assert "has not ended within 2 s" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("name", WAITING)
def test_ctrl_c_ends_a_wait(name: str, line: Callable[[str], list[str]]) -> None:
    code = "import sys; from shiftboss.cli import main, waiting; waiting.PATIENCE = 0.05; sys.exit(main())"
    command = [sys.executable, "-c", code, *line(name)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    while "waiting for task" not in said:
        text = process.stderr.readline()
        assert text, said
        said += text
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode in (0, 130)
    assert "Traceback" not in rest


@pytest.mark.parametrize("timeout", ["nan", "inf", "1e999", "-1", "soon", ""])
def test_a_timeout_is_a_time(
    timeout: str, line: Callable[[str], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*line("submit --wait"), "--timeout", timeout]) == 2
    assert "hint: for example: 30s" in capfd.readouterr().err
    main(["tasks", "list", "--json"])
    assert len(json.loads(capfd.readouterr().out)["items"]) == 1, "nothing was enqueued"
