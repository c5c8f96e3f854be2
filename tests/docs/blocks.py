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
INSTALLS = "installs packages, which script/setup and the wheel test do"
STAYS = "a process that stays; the tests of its package start it"
IDS = "names a task, group or call of the reader's own fleet"
HOSTS = "changes hosts or names servers that a test does not have"
DEMO = "the tests themselves, and a demo of a minute, which is run by hand before a release"
CHAOS = "takes minutes; tests/extensions/chaos/test_run.py runs the command for seconds"
EXAMPLES = "run by tests/examples, or by the tests of the extension that it shows"
OWN = "needs the reader's own files or table; the tests of its package do the same with theirs"

#: By page: the beginning of each block that is not run, and why.
NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {
        "pip install": INSTALLS,
        "shiftboss init": "the tutorial does the same, " + ELSEWHERE,
        "script/demo": DEMO,
    },
    "CONTRIBUTING.md": {
        "script/test": "runs the tests themselves",
        "uv pip compile": "changes requirements.lock",
    },
    "bench/README.md": {"": "benchmarks take minutes and need an idle machine"},
    "examples/README.md": {"": EXAMPLES},
    "examples/agent/README.md": {"pip install": EXAMPLES},
    "examples/approval/README.md": {"pip install": EXAMPLES},
    "examples/extension/README.md": {"pip install": "tests/packaging/test_removable.py installs it"},
    "examples/node-worker/README.md": {"npm ci": EXAMPLES},
    "docs/tutorial.md": {"": ELSEWHERE},
    "docs/install.md": {
        "pip install": INSTALLS,
        "shiftboss db start": "tests/db/test_embedded.py starts and stops such servers",
        "export SHIFTBOSS_DATABASE_URL": HOSTS,
        "script/demo": DEMO,
    },
    "docs/benchmarks/chaos.md": {"": CHAOS},
    "docs/how-to/admin-api.md": {"shiftboss admin": STAYS, "curl -N": STAYS},
    "docs/how-to/ai.md": {"shiftboss ai complete": "needs a key of OpenAI", "shiftboss ai calls": IDS},
    "docs/how-to/backup-and-restore.md": {
        "": "copies and restores servers; the tests of backups do so with servers of their own",
    },
    "docs/how-to/chaos.md": {"": CHAOS},
    "docs/how-to/check-arguments.md": {"$ shiftboss submit": "tests/app/test_schemas.py checks this message"},
    "docs/how-to/command-line.md": {
        "# retry every failed": "waits for a worker",
        "shiftboss completion": "writes to the reader's shell; tests/cli/test_main.py checks completions",
    },
    "docs/how-to/coordinator.md": {
        "shiftboss coordinator": STAYS,
        "shiftboss worker": STAYS,
        "shiftboss scale 8": "needs a supervisor; tests/supervisor/test_hosts.py scales",
        "shiftboss scale --simulate": OWN,
        "grpcurl": "grpcurl is not installed; tests/extensions/grpc/test_other_clients.py uses reflection",
    },
    "docs/how-to/deploy.md": {"export": HOSTS, "useradd": HOSTS, "cp deploy": HOSTS, "kubectl": HOSTS},
    "docs/how-to/django.md": {"export": STAYS, "pip install": INSTALLS},
    "docs/how-to/durable-work.md": {
        "shiftboss events send": IDS,
        "shiftboss approvals": IDS,
        "shiftboss tasks": IDS,
        "pip install": INSTALLS,
    },
    "docs/how-to/encrypt-payloads.md": {"pip install": INSTALLS},
    "docs/how-to/journal.md": {"shiftboss journal": OWN},
    "docs/how-to/monitor.md": {
        "shiftboss doctor": "its exit code tells of problems; tests/cli/test_doctor.py runs it"
    },
    "docs/how-to/operate.md": {"": "run by tests/docs/test_operate.py"},
    "docs/how-to/poolers-and-failover.md": {
        "shiftboss db roles": "needs roles; tests/db/test_roles.py makes them",
    },
    "docs/how-to/ray.md": {"": "needs a Ray cluster; tests/extensions/ray has one where Ray is installed"},
    "docs/how-to/runs-and-bots.md": {"shiftboss worker": STAYS, "curl": STAYS, "shiftboss bot": IDS},
    "docs/how-to/see-inside.md": {
        "shiftboss logs": IDS,
        "shiftboss errors": IDS,
        "OTEL_EXPORTER": STAYS,
    },
    "docs/how-to/supervise.md": {
        "$ shiftboss supervise": STAYS,
        "$ shiftboss slots": "names slots of the reader's own fleet",
        "$ shiftboss events": "follows",
    },
    "docs/how-to/test-your-tasks.md": {"pip install": INSTALLS},
    "docs/how-to/upgrade.md": {"shiftboss db migrate": HOSTS, "systemctl": HOSTS},
    "docs/how-to/vectorizers.md": {"shiftboss": OWN},
}


#: Pages whose other blocks run. A block of any other page has to be listed above, or its page here.
RUN = {
    "docs/how-to/admin-api.md",
    "docs/how-to/ai.md",
    "docs/how-to/coordinator.md",
    "docs/how-to/schedules.md",
    "docs/how-to/fair-shares.md",
    "docs/how-to/encrypt-payloads.md",
    "docs/how-to/monitor.md",
    "docs/how-to/retries-and-limits.md",
    "docs/how-to/see-inside.md",
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
