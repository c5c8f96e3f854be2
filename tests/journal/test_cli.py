"""The command line as a process: JSON, plain on a pipe, rich on a terminal, clear errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from shiftboss.journal.view import sparkline


def shiftboss(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SHIFTBOSS_DATABASE_URL": url}
    command = [sys.executable, "-m", "shiftboss", "journal", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def output(url: str, *arguments: str) -> Any:
    done = shiftboss(url, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_reports_bad_lines_and_imports_the_rest(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"user": "ada", "date": "2025-01-01", "text": "Sea."}\nnonsense\n{"user": "ada"}\n')
    done = shiftboss(database_url, "import", str(file))
    assert done.returncode == 1
    assert done.stdout == "1 new, 0 changed, 0 same, 2 bad; 6 tasks enqueued\n"
    assert f"{file}:2: not JSON" in done.stderr
    assert f"{file}:3: no content" in done.stderr
    again = json.loads(shiftboss(database_url, "import", str(file), "--json").stdout)
    assert (again["new"], again["same"], again["tasks"]) == (0, 1, 0)
    assert [problem["line"] for problem in again["problems"]] == [2, 3]
    assert output(database_url, "process", "--json")["tasks"]
    assert output(database_url, "status", "--json")[0]["entries"] == 1


def test_show_search_insights_and_status(analysed_url: str) -> None:
    shown = output(analysed_url, "show", "mara-2025-02-19", "--json")
    assert shown["processed"] is True
    assert next(iter(shown["results"])) == "raw_data_parsing"
    hits = output(analysed_url, "search", "selling bread at the market", "-n", "3", "--json")
    assert hits[0]["external_id"] == "priya-2024-11-02"
    plain = shiftboss(analysed_url, "search", "selling bread at the market", "-n", "3").stdout.splitlines()
    assert [line.split("\t")[2] for line in plain] == [hit["external_id"] for hit in hits]
    found = output(analysed_url, "insights", "--user", "mara", "--json")
    assert any("hard time" in told["text"] for told in found["insights"])
    text = shiftboss(analysed_url, "insights", "--user", "mara").stdout
    assert "\x1b" not in text
    assert "hard time" in text
    assert "jonas\t31\t31" in shiftboss(analysed_url, "status").stdout


def test_an_export_can_be_imported_again(analysed_url: str, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    assert shiftboss(analysed_url, "export", str(file), "--user", "jonas").returncode == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 31
    assert lines[0]["id"] == "jonas-2024-09-01"
    assert lines[0]["results"]["sentiment_analysis"]["processed_data"]["overall_sentiment"]
    assert output(analysed_url, "import", str(file), "--json")["same"] == 31
    assert output(database_url, "import", str(file), "--json", "--no-process")["new"] == 31


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "nothing"], "there is no entry 'nothing'"),
        (["insights", "--user", "nobody"], "there is no journal of 'nobody'"),
        (["search", ""], "nothing to search for"),
        (["import", "missing.jsonl"], "there is no file missing.jsonl"),
        (["export", "--user", "nobody"], "there is no journal of 'nobody'"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(database_url: str, arguments: list[str], message: str) -> None:
    done = shiftboss(database_url, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {message}")
    assert "Traceback" not in done.stderr


def test_a_terminal_gets_colours(analysed_url: str) -> None:
    environment = os.environ | {"SHIFTBOSS_DATABASE_URL": analysed_url, "TERM": "xterm-256color"}
    command = f"{sys.executable} -m shiftboss journal insights --user mara"
    text, code = pexpect.run(command, env=environment, withexitstatus=True, encoding="utf-8", timeout=60)
    assert code == 0
    assert "\x1b[3" in text


def test_a_sparkline_has_one_bar_per_mood() -> None:
    assert sparkline([-1, -0.3, 0, None, 0.3, 1]) == "▁▃▅ ▇█"
