"""The Python blocks of the AI guide run in order against the protocol server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ProtocolServer

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "ai.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(180)
def test_the_examples_run(database_url: str, server: ProtocolServer, tmp_path: Path) -> None:
    server.answers({"name": "lamp", "price": 20}, to="Extract")
    server.answers("Once upon a time.", to="story")
    server.answers("It shines.", to="Describe")
    server.answers("Minka", to="cat")
    script = tmp_path / "guide.py"
    script.write_text("\n".join(BLOCK.findall(GUIDE.read_text())))
    environment = os.environ | {
        "SHIFTBOSS_DATABASE_URL": database_url, "SHIFTBOSS_DATA_DIR": str(tmp_path / "data"),
        "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1",
    }  # fmt: skip
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Minka openai" in done.stdout
    assert "lamp 20.0" in done.stdout
    assert done.stdout.count("Once upon a time.") == 2
    assert "It shines." in done.stdout
