"""The command line: JSON, plain on a pipe, rich on a terminal, clear errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pexpect
import psycopg
import pytest

from shiftboss.cli import main
from shiftboss.extensions.journal.view import sparkline


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Cli = Callable[..., Done]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """`cli(url, "status")`: the command in this process, with what it printed."""

    def run(url: str, *arguments: str) -> Done:
        monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", url)
        code = main(["journal", *arguments])
        return Done(code, *capfd.readouterr())

    return run


def test_import_reports_bad_lines_and_imports_the_rest(cli: Cli, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"user": "ada", "date": "2025-01-01", "text": "Sea."}\nnonsense\n{"user": "ada"}\n')
    done = cli(database_url, "import", str(file))
    assert done.code == 1
    assert done.out == "1 new, 0 changed, 0 same, 2 bad; 6 tasks enqueued\n"
    assert f"{file}:2: not JSON" in done.err
    assert f"{file}:3: no content" in done.err
    again = json.loads(cli(database_url, "import", str(file), "--json").out)
    assert (again["new"], again["same"], again["tasks"]) == (0, 1, 0)
    assert [problem["line"] for problem in again["problems"]] == [2, 3]
    assert cli(database_url, "process", "--json").json()["tasks"]
    assert cli(database_url, "status", "--json").json()[0]["entries"] == 1


def test_changes_are_audited(cli: Cli, database_url: str, tmp_path: Path) -> None:
    entry = tmp_path / "day.txt"
    entry.write_text("A quiet day at home.")
    for words in (["import", str(entry), "--no-process"], ["process"], ["erase", "--yes"]):
        assert cli(database_url, *words, "--user", "ann").code == 0
    with psycopg.connect(database_url) as conn:
        rows = conn.execute("SELECT action, target FROM shiftboss.audit ORDER BY id").fetchall()
    assert rows == [("journal.import", "day.txt"), ("journal.process", "ann"), ("journal.erase", "ann")]


def test_show_search_insights_and_status(cli: Cli, analysed_url: str) -> None:
    shown = cli(analysed_url, "show", "mara-2025-02-19", "--json").json()
    assert shown["processed"] is True
    assert next(iter(shown["results"])) == "raw_data_parsing"
    assert cli(analysed_url, "show", _id(analysed_url, "mara-2025-02-19")[:18], "--json").json() == shown
    hits = cli(analysed_url, "search", "selling bread at the market", "-n", "3", "--json").json()
    assert hits[0]["external_id"] == "priya-2024-11-02"
    plain = cli(analysed_url, "search", "selling bread at the market", "-n", "3").out.splitlines()
    assert [line.split("\t")[2] for line in plain] == [hit["external_id"] for hit in hits]
    found = cli(analysed_url, "insights", "--user", "mara", "--json").json()
    assert any("hard time" in told["text"] for told in found["insights"])
    text = cli(analysed_url, "insights", "--user", "mara").out
    assert "\x1b" not in text
    assert "hard time" in text
    assert "jonas\t31\t31" in cli(analysed_url, "status").out


def _id(url: str, external: str) -> str:
    with psycopg.connect(url) as conn:
        row = conn.execute("SELECT id FROM journal.entries WHERE external_id = %s", [external]).fetchone()
    return str(row and row[0])


def test_an_export_can_be_imported_again(
    cli: Cli, analysed_url: str, database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    assert cli(analysed_url, "export", str(file), "--user", "jonas").code == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 31
    assert lines[0]["id"] == "jonas-2024-09-01"
    assert lines[0]["results"]["sentiment_analysis"]["processed_data"]["overall_sentiment"]
    assert cli(analysed_url, "import", str(file), "--json").json()["same"] == 31
    assert cli(database_url, "import", str(file), "--json", "--no-process").json()["new"] == 31


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "nothing"], 3, "there is no entry 'nothing'"),
        (["insights", "--user", "nobody"], 3, "there is no journal of 'nobody'"),
        (["search", ""], 2, "the search text is empty"),
        (["import", "missing.jsonl"], 2, "there is no file missing.jsonl"),
        (["export", "--user", "nobody"], 3, "there is no journal of 'nobody'"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(
    cli: Cli, database_url: str, arguments: list[str], code: int, message: str
) -> None:
    done = cli(database_url, *arguments)
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith(f"error: {message}")
    assert "Traceback" not in done.err


def test_a_terminal_gets_colours(analysed_url: str) -> None:
    environment = os.environ | {"SHIFTBOSS_DATABASE_URL": analysed_url, "TERM": "xterm-256color"}
    command = f'"{sys.executable}" -m shiftboss journal insights --user mara'
    text, code = pexpect.run(command, env=environment, withexitstatus=True, encoding="utf-8", timeout=60)
    assert code == 0
    assert "\x1b[3" in text


def test_a_sparkline_has_one_bar_per_mood() -> None:
    assert sparkline([-1, -0.3, 0, None, 0.3, 1]) == "▁▃▅ ▇█"
