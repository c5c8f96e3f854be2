"""Make a mutant, run its tests, say what became of it: one server, one template database per mutant."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from bench.mutants.plugin import MADE
from bench.mutants.sites import Site
from bench.mutants.targets import stages

from shiftboss.db.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}
TEMPLATE, PRISTINE = "shiftboss_template", "pristine"
MIGRATE = "import asyncio, sys; from shiftboss.db.migrate import migrate; asyncio.run(migrate(sys.argv[1]))"
STAGE_SECONDS = 1800  # a busy machine is no reason to call a mutant dead
TEST_SECONDS = 60
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?:\[[^\n]*?\])?)(?: - |$)", re.MULTILINE)


class Bench:
    """A copy of the repository, a server, and a migrated database to copy."""

    def __init__(self, place: Path, url: str) -> None:
        self.tree = place / "tree"
        self.url = url
        self.ordinary = url.replace(
            urlsplit(url).netloc, f"tester:ordinary@{urlsplit(url).netloc.rpartition('@')[2]}"
        )

    def admin(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            done = conn.execute(statement)
            return done.fetchall() if done.description else []

    def tidy(self) -> None:
        """End what a killed run left: processes of this tree, databases of tests."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"PYTHONPATH={self.tree}".encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
            if ours:
                os.kill(int(entry.name), signal.SIGKILL)
        for (name,) in self.admin("SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'"):
            self.admin(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def pytest(self, words: list[str], made: bool = True) -> tuple[int | None, str]:
        """The exit code, None after a timeout, and the end of what it wrote."""
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-rfE", "--no-header", "--tb=no"]
        command += ["-p", "no:cacheprovider", "-p", "bench.mutants.plugin", "--server", self.url]
        command += [f"--timeout={TEST_SECONDS}", "--timeout-method=signal", *words]
        env = self.environment() | {MADE: "yes" if made else ""}
        process = subprocess.Popen(
            command,
            cwd=self.tree,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=STAGE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        finally:
            self.tidy()
        return process.returncode, said

    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": f"{self.tree}/src:{self.tree}"}

    def template(self, changed: bool = True) -> str | None:
        """Make the template anew, with the functions as they are in the tree; why it cannot be, if so."""
        self.admin(f"DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)")
        self.admin(f"CREATE DATABASE {TEMPLATE} OWNER tester TEMPLATE {PRISTINE}")
        if not changed:
            return None
        url = urlunsplit(urlsplit(self.ordinary)._replace(path=f"/{TEMPLATE}"))
        command = [sys.executable, "-c", MIGRATE, url]
        done = subprocess.run(command, cwd=self.tree, env=self.environment(), capture_output=True, text=True)
        return None if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2][:200]

    def judge(self, site: Site, groups: slice, files: list[str] | None = None) -> dict[str, Any]:
        """What became of this mutant: stillborn, killed, timeout, or unnoticed by these groups of tests."""
        path, began = self.tree / site.file, time.monotonic()
        whole = path.read_text()
        text = site.apply(whole)
        path.write_text(text)
        try:
            wrong = broken(text) if site.file.endswith(".py") else None
            wrong = wrong or self.template(changed=site.file.endswith(".sql"))
            verdict, by = (
                self.tests([files] if files else stages(site)[groups])
                if wrong is None
                else ("stillborn", wrong)
            )
        finally:
            path.write_text(whole)
        return site.told() | {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - began, 1)}

    def tests(self, groups: list[list[str]]) -> tuple[str, str | None]:
        for files in groups:
            doubtful: list[str] = []
            while True:
                code, said = self.pytest(["-x", *files, *(f"--deselect={name}" for name in doubtful)])
                if code == 0:
                    break
                if code is None:
                    return "timeout", None
                failed = FAILED.findall(said)
                if not failed or self.pytest([failed[0]])[0] != 0:
                    return "killed", failed[0] if failed else said.strip()[-200:]
                doubtful.append(
                    failed[0]
                )  # it failed once and not again: chance, or a race that the mutant opens
        return "unnoticed", None


def broken(text: str) -> str | None:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError as error:
        return str(error)
    return None


@contextmanager
def bench() -> Iterator[Bench]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    place = Path(tempfile.mkdtemp(prefix="mutants-", dir=memory))
    place.chmod(0o755)
    server = EmbeddedServer(place / "server", settings=FAST, linger=0)
    try:
        (place / "tree").mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", place / "tree"], input=archive.stdout, check=True)
        compileall.compile_dir(place / "tree", quiet=2)
        made = Bench(place, server.acquire())
        code, said = made.pytest(["tests/queue/test_lease_numbers.py"], made=False)
        if code != 0:
            raise SystemExit(f"the tests do not pass without a mutant:\n{said}")
        made.admin(f"CREATE DATABASE {PRISTINE} TEMPLATE {TEMPLATE}")
        yield made
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)
