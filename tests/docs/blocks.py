"""The command blocks of the manual, and those that the tests do not run, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
COMMANDS = {"sh", "bash", "console"}
OTHERS = {"ini", "jinja", "json", "pycon", "python", "sql", "text", "toml", "yaml"}

ELSEWHERE = "run by tests/docs/test_documents.py"
PUBLISHED = "installs the published package; tests/packaging installs the wheel"
HOSTS = "changes the system's users and services, or needs container engines and clusters"
DEMO = "tests/test_demo.py runs the demo; script/test are the tests themselves"
CHAOS = "takes minutes; tests/extensions/chaos/test_run.py runs the command for seconds"
EXAMPLES = "run by tests/examples, or by the tests of the extension that it shows"

#: By page: the beginning of each block that is not run by test_commands.py, and why.
NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {"pip install": PUBLISHED, "script/demo": DEMO},
    "CONTRIBUTING.md": {
        "script/test": "runs the tests themselves; tests/test_script.py checks the options",
        "uv pip compile": "changes requirements.lock",
    },
    "bench/README.md": {"": "benchmarks take minutes and need an idle machine"},
    "examples/README.md": {"": EXAMPLES},
    "examples/agent/README.md": {"pip install": EXAMPLES},
    "examples/approval/README.md": {"pip install": EXAMPLES},
    "examples/extension/README.md": {"pip install": "tests/packaging/test_removable.py installs it"},
    "examples/node-worker/README.md": {"npm ci": EXAMPLES},
    "docs/tutorial.md": {"": ELSEWHERE},
    "docs/install.md": {"pip install": PUBLISHED, "script/demo": DEMO},
    "docs/benchmarks/chaos.md": {"": CHAOS},
    "docs/how-to/backup-and-restore.md": dict.fromkeys(
        ("shiftboss db status", "pg_dump", "export", "shiftboss queues", "pg_basebackup", "cp -R"),
        "run by tests/db/test_backup.py",
    ),
    "docs/how-to/chaos.md": {"": CHAOS},
    "docs/how-to/check-arguments.md": {"$ shiftboss submit": "tests/app/test_schemas.py checks this message"},
    "docs/how-to/coordinator.md": {
        "grpcurl": "no package has grpcurl; tests/extensions/grpc/test_other_clients.py uses reflection",
    },
    "docs/how-to/deploy.md": {"useradd": HOSTS, "cp deploy": HOSTS, "kubectl": HOSTS},
    "docs/how-to/django.md": {"pip install": PUBLISHED},
    "docs/how-to/durable-work.md": {"pip install": PUBLISHED},
    "docs/how-to/operate.md": {"": "run by tests/docs/test_operate.py"},
    "docs/how-to/ray.md": {"": "needs a Ray cluster; tests/extensions/ray has one where Ray is installed"},
    "docs/how-to/runs-and-bots.md": {
        "shiftboss bot": "requests the websites of places; tests/extensions/bots runs both with its own sites",
    },
    "docs/how-to/test-your-tasks.md": {"pip install": PUBLISHED},
    "docs/how-to/upgrade.md": {"systemctl": HOSTS},
}


class Block(NamedTuple):
    page: str
    code: str

    @property
    def reason(self) -> str | None:
        """Why it is not run; None: it is."""
        reasons = NOT_RUN.get(self.page, {})
        return next((why for begins, why in reasons.items() if self.code.startswith(begins)), None)

    @property
    def script(self) -> str:
        """What to type: of a session, the lines behind the prompt."""
        lines = self.code.splitlines()
        typed = [line[2:] for line in lines if line.startswith("$ ")]
        return "\n".join(typed or lines)


def pages() -> list[Path]:
    """The manual, and every other document that tells a reader what to type."""
    folders = (".", "docs", "docs/*", "examples", "examples/*", "bench")
    return [path for folder in folders for path in sorted(ROOT.glob(f"{folder}/*.md"))]


def fences() -> Iterator[tuple[str, str, str]]:
    """Page, language and text of every block of code."""
    for path in pages():
        page = path.relative_to(ROOT).as_posix()
        for indent, language, code in FENCE.findall(path.read_text(encoding="utf-8")):
            yield page, language, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)


def blocks() -> Iterator[Block]:
    return (Block(page, code) for page, language, code in fences() if language in COMMANDS)
