"""`shiftboss providers` and `shiftboss ai calls` show what the fleet shares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pexpect
import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Need, answers
from shiftboss.extensions.ai.errors import Exhausted

from .asking import asked
from .conftest import SENTIMENT, ProtocolServer


def run(url: str, *arguments: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "shiftboss", "providers", *arguments],
        env=os.environ | {"SHIFTBOSS_DATABASE_URL": url, "COLUMNS": "200"} | environment,
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


async def test_the_table_and_its_json(
    db: Database, database_url: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers(SENTIMENT, usage={"prompt_tokens": 1000, "completion_tokens": 100})
    settings = make_settings("openai", daily_budget=5, requests_per_minute=60)
    async with await AI.open(settings, db) as ai:
        await ai.complete(**asked("sentiment_analysis", "x", answers.SentimentAnalysis, need=Need.ADVANCED))
    rows = {
        row["provider"]: row for row in json.loads(run(database_url, "--json", OPENAI_API_KEY="sk-hidden"))
    }
    assert (rows["openai"]["configured"], rows["openai"]["circuit"]) == (True, "closed")
    assert rows["openai"]["spend_today"] == 0.0035
    assert (rows["azure"]["configured"], rows["local"]["configured"]) == (False, True)
    table = run(database_url, OPENAI_API_KEY="sk-hidden")
    assert table.splitlines()[0].split("\t")[:2] == ["openai", "yes"], "one line per row in a pipe"
    assert "1/60" in table
    assert "$0.0035/$5.00" in table
    assert "sk-hidden" not in table


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("numpy", "from shiftboss import App; App('x').ai", "ai"),
        ("pydantic_ai", "import shiftboss.extensions.agents", "agents"),
    ],
)
def test_a_missing_extra_is_named(package: str, code: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\ntry:\n    {code}\nexcept Exception as e: print(e.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"pip install 'shiftboss[{extra}]'", done.stderr


def on_a_terminal(url: str, command: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment |= {"SHIFTBOSS_DATABASE_URL": url, "TERM": "xterm"}
    line = f'"{sys.executable}" -m shiftboss {command}'
    text, code = pexpect.run(
        line, env=environment, withexitstatus=True, encoding="utf-8", timeout=60, dimensions=(50, 80)
    )
    assert code == 0, text
    return str(text)


async def test_the_tables_fit_into_80_columns(
    db: Database, database_url: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers("Minka", usage={"prompt_tokens": 1000, "completion_tokens": 100})
    async with await AI.open(make_settings("openai", daily_budget=5), db) as ai:
        answer = await ai.complete("A cat?", task_type="shop.describe", tenant="acme")
        server.reset()
        server.fails(401)
        with pytest.raises(Exhausted):
            await ai.complete("A dog?")
    calls, providers = (on_a_terminal(database_url, command) for command in ("ai calls", "providers"))
    for word in (str(answer.call_id)[:6], "shop.describe", "acme", "$0.003500", "refused"):
        assert word in calls
    assert "$0.0035/$5.00" in providers
    assert "openai: key refused (401)" in providers
