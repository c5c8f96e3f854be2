"""`shiftboss providers` shows what the fleet shares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Need, answers

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
