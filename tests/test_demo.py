"""`script/demo` on a terminal: the whole story, told in lines, with the link at the end and nothing lost."""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from shiftboss.db.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[1]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
#: What has to be said, in this order in each row; the rows happen side by side.
STORY = [
    [
        r"starting +embedded PostgreSQL",
        r"enqueued +3092 tasks of five types, and \d+ that analyse journals with AI",
    ],
    [r"fault +kill -9 \d+: (worker:\S+)", r"fleet +\1 died: killed by SIGKILL"],
    [r"fleet +retry: the first payments", r"done +\d+ tasks in \d+ s, \d+ of them after a retry"],
    [r"fleet +failed for good: poison", r"failed +1: the task that kills its worker"],
    [
        r"fault +the AI provider now answers 503",
        r"fleet +the failing model's circuit breaker is open",
        r"fault over +the AI provider answers again",
        r"AI +\d+ answers for 33 steps, \d+ by the fallback",
        r"budget +\S+ \$0\.\d\d of \$1\.00 spent today",
    ],
    [
        r"checked +(\d+) enqueued = \d+ complete \+ 1 failed; none lost",
        r"mara",
        r"search “selling bread”",
        r"ready +the fleet keeps running until you press Ctrl\+C",
    ],
]
LINK = re.compile(r"dashboard +(http://127\.0\.0\.1:\d+/login/\S+)  \(valid once, for 12 h\)\s*$")
RAW = re.compile(r"Traceback|\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|\b(?:level|logger)=|^\{", re.MULTILINE)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[pexpect.spawn]:
    data = tmp_path / "data"
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHIFTBOSS_DATABASE")}
    child = pexpect.spawn(
        str(ROOT / "script" / "demo"),
        ["--port", "0"],
        env=env | {"SHIFTBOSS_DATA_DIR": str(data), "TERM": "xterm-256color"},
        cwd=str(tmp_path),
        dimensions=(50, 160),
        encoding="utf-8",
        timeout=500,
    )
    yield child
    child.close(force=True)
    EmbeddedServer(data).stop()


@pytest.mark.timeout(600)
def test_the_demo_tells_the_whole_story(demo: pexpect.spawn) -> None:
    demo.expect(r"http://\S+/login/[^\n]+\n")
    said = CONTROL.sub("", f"{demo.before}{demo.after}")
    for row in STORY:
        assert re.search("[^~]*?".join(row), said), (row, said)
    assert RAW.findall(said) == []
    link = LINK.search(said)
    assert link is not None, said
    with urllib.request.urlopen(link[1], timeout=30) as page:
        assert page.status == 200
    demo.sendintr()
    demo.expect(pexpect.EOF)
    last = CONTROL.sub("", demo.before or "").strip()
    assert re.fullmatch(r"(\^C)? *\d+s +stopping  running tasks may finish", last), last
    demo.wait()
    assert demo.exitstatus == 0
