"""`script/demo` on a terminal: every fault is shown, no task is lost, and the link is the last line."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pexpect
import pytest

from shiftboss.db.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.serial
@pytest.mark.timeout(420)
def test_the_demo(tmp_path: Path) -> None:
    data = tmp_path / "a folder"
    data.mkdir()
    paths = os.pathsep.join([str(ROOT / "script"), str(ROOT / "src")])
    environment = os.environ | {"SHIFTBOSS_DATA_DIR": str(data), "PYTHONPATH": paths, "COLUMNS": "200"}
    command = [str(ROOT / "script" / "demo.py"), "--port", "0"]
    demo = pexpect.spawn(sys.executable, command, env=environment, encoding="utf-8", timeout=300)
    try:
        demo.expect(r"dashboard.*http://\S+\r\n")
        screen = ESCAPES.sub("", demo.before + demo.after)
        demo.sendintr()
        demo.expect(pexpect.EOF)
    finally:
        demo.close()
        EmbeddedServer(data).stop()
    assert demo.exitstatus == 0
    assert "http://127.0.0.1:" in screen.splitlines()[-1]
    for shown in ("kill -9", "503", "answers again", "second attempt", "poison", "none lost", "budget"):
        assert shown in screen
    assert not re.search(r"WARNING|ERROR|Traceback", screen)
