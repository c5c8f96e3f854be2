from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from shiftboss import __version__
from shiftboss.cli import COMMANDS, Command, main
from shiftboss.model.settings import Settings


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shiftboss", *args]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | env, check=False)


def test_help_lists_every_command_quickly() -> None:
    # Its own processor time, the best of three: a busy machine is not what is measured.
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert min(times) < 0.3


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Usage: shiftboss {name}" in capsys.readouterr().out


def test_an_option_of_an_extension_sets_its_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SHIFTBOSS_ADMIN_PORT", "SHIFTBOSS_ADMIN_PORT__FLAG"):
        monkeypatch.setenv(name, "1")  # restored at the end
    assert main(["up", "-p", "99999"]) == 2
    assert capsys.readouterr().err.startswith("error: admin.port from --port: Input should be less than")


def test_a_repeatable_option_of_an_extension_gives_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHIFTBOSS_COORDINATOR_ADDRESSES", "SHIFTBOSS_COORDINATOR_ADDRESSES__FLAG"):
        monkeypatch.setenv(name, "[]")
    assert main(["worker", "no_such_module:app", "--coordinator", "a:1", "--coordinator", "b:2"]) == 2
    settings = Settings.load()
    assert settings.value_of("coordinator.addresses") == ("a:1", "b:2")
    assert settings.source_of("coordinator.addresses") == "--coordinator"


def test_version() -> None:
    assert run("--version").stdout == f"shiftboss {__version__}\n"


def test_a_misspelt_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cofnig"]) == 2
    assert capsys.readouterr().err == (
        "error: there is no command 'cofnig'\nhint: did you mean `shiftboss config`?\n"
    )


def test_an_error_is_two_lines_and_a_code() -> None:
    done = run("db", "migrate", "--database-url", "postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 5
    assert "Traceback" not in done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"]


def test_debug_shows_the_traceback() -> None:
    done = run("db", "migrate", "--debug", "--database-url=postgresql://nobody@127.0.0.1:1/none")
    assert "Traceback" in done.stderr


def test_flags_behind_a_double_dash_are_not_ours() -> None:
    assert run("config", "--", "--debug").returncode == 2


def test_a_flag_without_a_value_says_so() -> None:
    done = run("db", "status", "--data-dir")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: --data-dir needs a value")


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "moon", Command("not_installed.moon:app", "fly", extra="space"))
    assert main(["moon"]) == 2
    assert "pip install 'shiftboss[space]'" in capsys.readouterr().err
