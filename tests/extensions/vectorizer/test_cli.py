"""`shiftboss vectorizer`, from create to drop."""

from __future__ import annotations

import json
import re
from unittest.mock import AsyncMock

import psycopg
import pytest

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.db.insights.condition import Condition
from shiftboss.extensions.vectorizer.rules import pgvector
from shiftboss.model.settings import Settings
from tests.conftest import as_superuser


@pytest.fixture
def table(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("CREATE TABLE public.notes (id int PRIMARY KEY, body text)")
        conn.execute("INSERT INTO public.notes VALUES (1, 'cats [on] sofas'), (2, 'stock markets')")
    return "public.notes"


def test_from_create_to_drop(table: str, database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        assert main(["vectorizer", *arguments]) == 0
        return capsys.readouterr().out

    assert "2 rows to embed" in run("create", table, "-c", "body", "--name", "n")
    run("worker", "--once", "--log-level", "error")
    assert "idle" in run("list")
    [shown] = json.loads(run("list", "--json"))
    assert (shown["name"], shown["state"], shown["pending"]) == ("n", "idle", 0)
    assert run("search", "n", "kitten", "-n", "1").rstrip().split("\t")[2:] == ["1", "cats [on] sofas"]
    by_words = run("search", "n", "markets", "--mode", "text", "--filter", "id>=1", "-f", "id!=7")
    assert "stock markets" in by_words
    assert "cats" not in by_words
    assert "cats" not in run("search", "n", "kitten", "--mode", "hybrid", "-f", "id=2")
    assert run("errors", "n") == ""
    run("worker", "-i", "n", "-c", "2", "--poll-interval", "500ms", "--once", "--log-level", "error")
    assert "idle" in run(
        "update", "n", "--index", "ivfflat", "--index-option", "lists=2", "--api-key-name", "X_KEY"
    )
    assert "updating" in run("update", "n", "--template", "Note: $body")
    assert "paused" in run("pause", "n")
    assert "resumed" in run("resume", "n")
    run("create", table, "-c", "body", "--name", "other", "--chunking", "separators", "--separator", "|")
    run("worker", "-i", "n", "--once", "--log-level", "error")
    assert re.search(r"^\d+\tother\tnotes\tworking\t2\t0\t", run("status"), re.MULTILINE)
    run("drop", "other", "--all")
    assert "0 failed rows" in run("retry", "n")
    assert "dropped" in run("drop", "n", "--all")
    assert run("status") == ""
    with psycopg.connect(database_url) as conn:
        audited = conn.execute("SELECT action, target FROM shiftboss.audit ORDER BY id").fetchall()
    verbs = ("create", "update", "update", "pause", "resume", "create", "drop", "retry", "drop")
    assert [action for action, _ in audited] == [f"vectorizer.{verb}" for verb in verbs]
    assert audited[3] == ("vectorizer.pause", "n")


def test_what_is_wrong_is_said_with_a_hint(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vectorizer", "create", table, "-c", "nope"]) == 4
    assert 'has no column "nope"' in capsys.readouterr().err
    assert main(["vectorizer", "pause", "missing"]) == 4
    assert 'there is no vectorizer "missing"' in capsys.readouterr().err


def test_the_status_says_that_no_worker_serves_the_queue(
    table: str, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["vectorizer", "create", table, "-c", "body", "--name", "n"]) == 0

    def noted() -> str:
        capsys.readouterr()
        assert main(["vectorizer", "status"]) == 0
        return capsys.readouterr().err

    assert noted() == "", "without tasks, `vectorizer worker` may do the work"
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("INSERT INTO tasks (task_type, queue) VALUES ('vectorizer.run', 'vectorizer')")
    assert "no worker serves the queue vectorizer: run `shiftboss worker" in noted()


async def test_doctor_says_that_there_is_no_pgvector(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pgvector(db, Settings.load()) == []
    with psycopg.connect(as_superuser(db.url), autocommit=True) as conn:
        conn.execute("DROP EXTENSION vector CASCADE")
    [finding] = await pgvector(db, Settings.load())
    assert (finding.level, finding.advice) == (
        "ok",
        "to use them, have a superuser run CREATE EXTENSION vector, then shiftboss db migrate",
    )
    nowhere = AsyncMock(return_value={"vector": None, "vector_available": False})
    monkeypatch.setattr(Condition, "server", nowhere)
    [finding] = await pgvector(db, Settings.load())
    assert finding.advice == "to use them, install pgvector on the server, then shiftboss db migrate"
