"""Invalid input on the command line gives a one-line error, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftboss.cli import main

HUGE = "9" * 30
BYTES = "caf\udce9"  # what Python makes of an argument that is not UTF-8
DEEP = "[" * 3000
TYPED: list[list[str]] = [
    *(["submit", "t", f"--params={value}"] for value in ("{", "[]", DEEP, '{"a": "\\ud800"}')),
    ["submit", BYTES],
    ["submit", "t", f"name={BYTES}"],
    ["submit", "t", "--delay", "1e300d"],
    ["submit", "t", "--delay", "99999999d"],
    ["submit", "t", "--delay", "-5s"],
    ["submit", "t", "--delay", "nan"],
    ["submit", "t" * 5000],
    ["submit", "t", "--queue", "q" * 5000],
    ["submit", "t", "--dedup-key", "".join(chr(0x4E00 + n * 7 % 20000) for n in range(5000))],
    ["submit", ""],
    ["submit", "t", "--app", "nosuch:app"],
    ["submit", "t", "--app", "json"],
    ["submit", "t", "--app", "json:nothing"],
    ["tasks", "list", "--since", "99999999d"],
    ["tasks", "list", "--since", "1e12"],
    ["tasks", "list", "--cursor", "garbage"],
    ["tasks", "list", "--cursor", "e30="],
    ["tasks", "list", "--search", BYTES],
    ["tasks", "show", "%"],
    ["tasks", "show", BYTES],
    ["tasks", "show", "\\"],
    ["tasks", "retry", "zz"],
    ["tasks", "cancel", "00000000-0000-0000-0000-000000000000"],
    ["why", "nothing"],
    ["queues", "limit", "q", "--running", HUGE],
    ["queues", "limit", "q", "--rate", "5", "--per", "0s"],
    ["queues", "limit", "q", "--rate", "5", "--per", "-1m"],
    ["queues", "limit", "q", "--rate", HUGE],
    ["queues", "pause", BYTES],
    ["schedule", "add", "n", "not cron", "t"],
    ["schedule", "add", "n", "0 0 30 2 *", "t"],
    ["schedule", "add", "n", "* * * * *", "t", "--timezone", "Mars/Olympus"],
    ["schedule", "add", "n", "* * * * *", "t", "--params", '{"a": "\\ud800"}'],
    ["schedule", "add", "n", "* * * * *", "t", "--params", DEEP],
    ["schedule", "add", "n", "* * * * *", "t", "--params", '{"a": "\\u0000"}'],
    ["schedule", "add", "n", "* * * * *", "t", "--requires", "3"],
    ["schedule", "remove", "nothing"],
    ["schedule", "pause", BYTES],
    ["events", "--limit", HUGE],
    ["events", "--kind", BYTES],
    ["journal", "import", "nothing.jsonl"],
    ["journal", "import", BYTES + ".txt"],
    ["journal", "search", BYTES],
    ["journal", "search", "x", "--limit", "0"],
    ["journal", "search", "x", "--since", "0001-01-01"],
    ["journal", "show", BYTES],
    ["journal", "show", "nothing"],
    ["journal", "insights", "--user", "nobody"],
    ["journal", "process", "--again", "nonsense"],
    ["journal", "export", "/nosuch/folder/file"],
    ["journal", "export", "/"],
    ["vectorizer", "create", "nosuch"],
    ["vectorizer", "create", "a b c"],
    ["vectorizer", "create", BYTES],
    ["vectorizer", "create", "tasks", "-c", "nosuch"],
    ["vectorizer", "create", "tasks", "-c", "task_type", "--schedule", "tomorrow"],
    ["vectorizer", "create", "tasks", "-c", "task_type", "--chunk-size", HUGE],
    ["vectorizer", "create", "tasks", "-c", "task_type", "--destination", "a.b.c.d"],
    ["vectorizer", "create", "tasks", "-c", "task_type", "--destination", '"'],
    ["vectorizer", "status", "nosuch"],
    ["vectorizer", "status", HUGE],
    ["vectorizer", "update", "nosuch"],
    ["vectorizer", "search", "nosuch", "x"],
    ["vectorizer", "errors", "--limit", HUGE],
    ["vectorizer", "worker", "--once", "--log-level", "loud"],
    ["vectorizer", "worker", "--once", "-i", "nosuch"],
    ["vectorizer", "worker", "--once", "--poll-interval", "soon"],
    ["vectorizer", "worker", "--once", "--poll-interval", "0s"],
    ["vectorizer", "search", "nosuch", "x", "--filter", "nonsense"],
    ["vectorizer", "search", "nosuch", "x", "--mode", "nonsense"],
    ["vectorizer", "create", "tasks", "-c", "task_type", "--index-option", "m"],
    ["runs", "show", "nothing"],
    ["runs", "list", "--limit", HUGE],
    ["runs", "list", "--status", "nonsense"],
    ["runs", "start", BYTES],
    ["runs", "start", "discovery", "--city", BYTES],
    ["token", "create", BYTES],
    ["token", "create", "x", "--days", "1e300"],
    ["token", "create", "x", "--days", "nan"],
    ["token", "login", "--minutes", "1e300"],
    ["token", "revoke", "nobody"],
    ["scale", "x"],
    ["scale", "q=x"],
    ["scale", "q=" + HUGE],
    ["scale", "q=99999"],
    ["scale", "--simulate", "/nosuch/x.png"],
    ["scale", "--simulate", "x.png", "--task-seconds", "-1"],
    ["scale", "--simulate", "x.png", "--rate", "nan"],
    ["scale", "--simulate", "x.png", "--load", "nosuch"],
    ["scale", "--simulate", "x.png", "--pattern", "nonsense"],
    ["config", "nosuch"],
    ["config", BYTES],
    ["config", "--config", "nosuch.toml"],
    ["config", "--config", "/"],
    ["init", "/proc/nothing"],
    ["bot", "nosuch"],
    ["worker", "nosuch:app"],
    ["worker", "json"],
    ["status", "--database-url", "nonsense"],
    ["status", "--database-url", "postgresql://[::1"],
    ["status", "--database-url", "postgresql://u:p@127.0.0.1:99999/x"],
    ["status", "--database-url", BYTES],
    ["pause", "nosuch"],
    ["restart", BYTES],
    ["health", "nosuch"],
    ["providers", "nosuch"],
    ["supervise", "q=0"],
    ["supervise", "nosuch:app", "--slots", "x"],
    [BYTES],
]

# Odd, and yet something that may be asked for.
ODD: list[list[str]] = [
    ["tasks", "list", "--search", "%_\\"],
    ["journal", "search", "x", "--until", "2999-12-31"],
    ["db", "shell", "--", "x"],
    ["schedule", "add", "n", "* * * * *", "t", "--params", f'{{"a": {HUGE}}}'],
    ["submit", "t", f'--params={{"a": {HUGE}}}'],
]


@pytest.fixture(autouse=True)
def _place(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("DATABASE_URL", "DATA_DIR", "CONFIG", "ADMIN_PORT", "COORDINATOR_ADDRESSES"):
        for name in (f"SHIFTBOSS_{variable}", f"SHIFTBOSS_{variable}__FLAG"):
            monkeypatch.setenv(name, "")  # flags are passed on through the environment: restore it afterwards
            monkeypatch.delenv(name)
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setenv("SHIFTBOSS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def named(words: list[str]) -> str:
    return " ".join(words)[:60].encode("ascii", "replace").decode()


@pytest.mark.parametrize("words", TYPED, ids=named)
def test_bad_input_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(words)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert code != 0, said.out
    assert said.err.strip() or said.out.strip()


@pytest.mark.parametrize("words", ODD, ids=named)
def test_odd_input_is_served(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "Traceback" not in capsys.readouterr().err
