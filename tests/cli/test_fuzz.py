"""Random words on the command line, random settings files and random imports: an error with a hint, no traceback.

SHIFTBOSS_TEST_FUZZ=100 tries that many times as many. Without it, the same input is tried every time.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from shiftboss.cli import commands, load_command, main
from shiftboss.model.errors import ConfigError
from shiftboss.model.settings import Settings

ROUNDS = int(os.environ.get("SHIFTBOSS_TEST_FUZZ", "1"))
pytestmark = pytest.mark.timeout(300 * ROUNDS)
#: They stay, start processes, open a browser or a terminal, or would be a server's own test.
LEFT_OUT = {
    "up",
    "worker",
    "supervise",
    "admin",
    "coordinator",
    "top",
    "bot",
    "init",
    "db",
    "chaos",
    "playground",
}
STAYS = {"tail", "feed"}
#: Seconds until Ctrl-C ends a command, which fails the test.
LONGEST = 60.0
#: They print until Ctrl-C, except in commands that wait for a task: those have a --timeout.
ENDLESS = {"--watch", "--follow"}
WORDS = ("", "x", "-1", "0", "999999999999999999999", "ü\U0001f600", "'; DROP TABLE tasks; --", "{}", "[", "a=b", "--", "-",
         "01890000-0000-7000-8000-000000000000", "1e999", "nan", "../../etc/passwd", "%s", "\t", "y" * 5000, "0s", "-5m")  # fmt: skip


def _lines(chance: random.Random) -> list[list[str]]:
    """Each command with arguments and options of its own, and values that make no sense."""
    found: list[list[str]] = []
    for name, command in commands().items():
        if name in LEFT_OUT:
            continue
        top = load_command(name, command)
        inner = getattr(top, "commands", None)
        for verb, leaf in inner.items() if inner else [(None, top)]:
            if verb in STAYS:
                continue
            line = [name] if verb is None else [name, verb]
            options = {
                flag: option for option in leaf.params for flag in option.opts if flag.startswith("--")
            }
            skipped = {"--help"} if "--timeout" in options else {"--help"} | ENDLESS
            for flag in [flag for flag in options if flag not in skipped and chance.random() < 0.4]:
                line += [flag, *([] if getattr(options[flag], "is_flag", False) else [chance.choice(WORDS)])]
            if "--timeout" in options and "--timeout" not in line:
                line += ["--timeout", "0.05"]
            if "--once" in options and "--once" not in line:
                line += ["--once"]
            found.append(line + chance.choices(WORDS, k=chance.randint(0, 3)))
    return found


def test_no_command_line_ends_in_a_traceback(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.chdir(tmp_path)
    chance = random.Random(26)
    lines = [line for _ in range(ROUNDS) for line in _lines(chance)]
    assert len(lines) > 60
    for line in lines:
        bound = threading.Timer(LONGEST, os.kill, [os.getpid(), signal.SIGINT])
        bound.start()
        code = main(line)  # raises what would be a traceback
        bound.cancel()
        said = capfd.readouterr()
        assert 0 <= code <= 10, (line, code)
        assert "Traceback" not in said.err, line
        if code not in (0, 2):
            assert said.err or said.out, line


toml = st.text(max_size=200) | st.builds(
    lambda section, key, value: f"[{section}]\n{key} = {value}\n",
    st.sampled_from(["worker", "database", "ai", "ai.openai", "encryption", "x y", "", "a.b.c"])
    | st.text(max_size=8),
    st.sampled_from(["concurrency", "url", "keys", "batch", "providers", "task_logs"]) | st.text(max_size=8),
    st.sampled_from(["1", "-1", "[]", "{}", '"x"', "nan", "1979-05-27", "[[1]]", "true", "9" * 400])
    | st.text(max_size=20),
)


@examples(
    max_examples=150 * ROUNDS,
    deadline=None,
    derandomize=ROUNDS == 1,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=toml)
def test_a_settings_file_is_read_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shiftboss.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(ConfigError):  # a refusal in words; anything else is a failure
        Settings.load({"SHIFTBOSS_CONFIG": str(path)})


@examples(max_examples=150 * ROUNDS, deadline=None, derandomize=ROUNDS == 1)
@given(
    key=st.sampled_from(Settings.keys()),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(WORDS),
)
def test_a_variable_is_read_or_refused(key: str, text: str) -> None:
    name = "SHIFTBOSS_" + key.replace(".", "_").upper()
    with suppress(ConfigError):
        Settings.load({name: text}, Path("/nonexistent"))


def test_an_import_is_taken_or_refused(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    chance = random.Random(26)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    contents = [b"", b"\x00", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b'{"text": 1}\n' * 3, b"\x1f\x8b" + b"\x00" * 50,
                b"PK\x03\x04" + bytes(50), b'{"text":"x","user":"' + b"y" * 2_000_000 + b'"}', chance.randbytes(5000)]  # fmt: skip
    names = [
        "../../../../etc/hostname",
        str(tmp_path / "folder"),
        "/dev/null",
        "/proc/self/mem",
        "nothing.jsonl",
    ]
    for n, content in enumerate(contents):
        (tmp_path / f"{n}.jsonl").write_bytes(content)
        names.append(str(tmp_path / f"{n}.jsonl"))
    for name in names:
        code = main(["journal", "import", name, "--user", "ann"])
        said = capfd.readouterr()
        assert 0 <= code <= 10, (name, code)
        assert "Traceback" not in said.err, name
