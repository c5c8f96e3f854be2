"""`shiftboss vectorizer`, from create to drop."""

from __future__ import annotations

import re

import psycopg
import pytest

from shiftboss.cli import main


@pytest.fixture
def table(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("CREATE TABLE public.notes (id int PRIMARY KEY, body text)")
        conn.execute("INSERT INTO public.notes VALUES (1, 'cats [on] sofas'), (2, 'stock markets')")
    return "public.notes"


def test_from_create_to_drop(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        assert main(["vectorizer", *arguments]) == 0
        return capsys.readouterr().out

    assert "2 rows to embed" in run("create", table, "-c", "body", "--name", "n")
    run("worker", "--once", "--log-level", "error")
    assert "idle" in run("list")
    assert "cats [on] sofas" in run("search", "n", "kitten", "-n", "1")
    by_words = run("search", "n", "markets", "--mode", "text", "--filter", "id>=1", "-f", "id!=7")
    assert "stock markets" in by_words
    assert "cats" not in by_words
    assert "cats" not in run("search", "n", "kitten", "--mode", "hybrid", "-f", "id=2")
    assert "no errors" in run("errors", "n")
    run("worker", "-i", "n", "-c", "2", "--poll-interval", "500ms", "--once", "--log-level", "error")
    assert "idle" in run(
        "update", "n", "--index", "ivfflat", "--index-option", "lists=2", "--api-key-name", "X_KEY"
    )
    assert "updating" in run("update", "n", "--template", "Note: $body")
    assert "paused" in run("pause", "n")
    assert "resumed" in run("resume", "n")
    run("create", table, "-c", "body", "--name", "other", "--chunking", "separators", "--separator", "|")
    run("worker", "-i", "n", "--once", "--log-level", "error")
    assert re.search(r"other.*working +2 ", run("status"))
    run("drop", "other", "--all")
    assert "0 failed rows" in run("retry", "n")
    assert "dropped" in run("drop", "n", "--all")
    assert "no vectorizers" in run("status")


def test_what_is_wrong_is_said_with_a_hint(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vectorizer", "create", table, "-c", "nope"]) == 4
    assert 'has no column "nope"' in capsys.readouterr().err
    assert main(["vectorizer", "pause", "missing"]) == 4
    assert 'there is no vectorizer "missing"' in capsys.readouterr().err
