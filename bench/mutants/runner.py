"""Make a mutant, run its tests, say what became of it: one server, one template database per mutant."""

from __future__ import annotations

import compileall
import json
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
from bench.mutants.plugin import COVER, MADE, ORDER
from bench.mutants.sites import Site

from shiftboss.db.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "track_functions": "all",
}
TEMPLATE, PRISTINE = "shiftboss_template", "pristine"
STAGE_SECONDS = 1800  # a busy machine is no reason to call a mutant dead
TEST_SECONDS = 60
RUN = "MUTANTS_RUN"
NO_TESTS = 5  # the exit code of pytest if it finds none of the names
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?:\[[^\n]*?\])?)(?: - |$)", re.MULTILINE)


class Bench:
    """A copy of the repository, a server, and a migrated database to copy."""

    def __init__(self, place: Path, url: str) -> None:
        self.place = place
        self.tree = place / "tree"
        self.url = url
        self.ordinary = url.replace(
            urlsplit(url).netloc, f"tester:ordinary@{urlsplit(url).netloc.rpartition('@')[2]}"
        )
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "bench.mutants.zygote"],
            cwd=self.tree,
            env=os.environ | {"PYTHONPATH": f"{self.tree}/src:{self.tree}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._zygote.terminate()
        self._zygote.wait()

    def admin(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            done = conn.execute(statement)
            return done.fetchall() if done.description else []

    def tidy(self) -> None:
        """End what a killed run left: processes of this tree, databases of tests."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"{RUN}={self.tree}".encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
            if ours:
                os.kill(int(entry.name), signal.SIGKILL)
        for (name,) in self.admin("SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'"):
            self.admin(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def pytest(self, words: list[str], **env: str) -> tuple[int | None, str]:
        """The exit code, None after a timeout, and what it wrote."""
        command = ["-q", "-rfE", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        command += ["-p", "bench.mutants.plugin", "--server", self.url]
        command += [f"--timeout={TEST_SECONDS}", "--timeout-method=signal", *words]
        log = self.place / "log"
        asked = {
            "words": command,
            "log": str(log),
            "env": env | {RUN: str(self.tree)},
            "seconds": STAGE_SECONDS,
        }
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps(asked) + "\n")
        self._zygote.stdin.flush()
        code = json.loads(self._zygote.stdout.readline())
        self.tidy()
        return code, log.read_text(errors="replace")

    def template(self, changed: str | None = None) -> str | None:
        """Make the template anew, with this SQL as well; why it cannot be, if so."""
        self.admin(f"DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)")
        self.admin(f"CREATE DATABASE {TEMPLATE} OWNER tester TEMPLATE {PRISTINE} STRATEGY file_copy")
        if changed is None:
            return None
        url = urlunsplit(urlsplit(self.ordinary)._replace(path=f"/{TEMPLATE}"))
        try:
            with psycopg.connect(url, options="-c search_path=pg_catalog,pg_temp") as conn:
                conn.execute(changed.encode())
        except psycopg.Error as error:
            return str(error).partition("\n")[0][:200]
        return None

    def judge(self, site: Site, groups: list[list[str]]) -> dict[str, Any]:
        """What became of this mutant: stillborn, killed, timeout, or unnoticed by these groups of tests."""
        path, began = self.tree / site.file, time.monotonic()
        whole = path.read_text()
        text = site.apply(whole)
        try:
            if site.file.endswith(".sql"):
                wrong = self.template(text)
            else:
                path.write_text(text)
                wrong = broken(text) or self.template()
            verdict, by = self.tests(groups) if wrong is None else ("stillborn", wrong)
        finally:
            path.write_text(whole)
        return site.told() | {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - began, 1)}

    def tests(self, groups: list[list[str]]) -> tuple[str, str | None]:
        order = self.place / "order"
        for names in filter(None, groups):
            order.write_text(json.dumps(names))
            files = sorted({name.partition("::")[0] for name in names})
            words, env = ["-x", *files], {MADE: "yes", ORDER: str(order)}
            code, said = self.pytest(words, **env)
            if code is None:
                return "timeout", None
            if code not in (0, NO_TESTS):
                failed = FAILED.findall(said)
                if not failed and self.pytest(words, **env)[0] != code:
                    raise SystemExit(f"pytest ended with {code}:\n{said[-3000:]}")
                return "killed", failed[0] if failed else f"pytest itself, which ends with {code}"
        return "unnoticed", None

    def cover(self, files: list[str]) -> dict[str, dict[str, Any]]:
        """What each test that passes takes and reaches, while nothing is changed."""
        self.template()
        place = self.place / "cover"
        place.mkdir()
        code, said = self.pytest(["-n", "2", *files], **{MADE: "yes", COVER: str(place)})
        print(said[-2000:], flush=True)
        if code is None:
            raise SystemExit("the tests do not end")
        found: dict[str, dict[str, Any]] = {}
        for file in place.iterdir():
            found |= json.loads(file.read_text())
        return found


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
    made = None
    try:
        (place / "tree").mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", place / "tree"], input=archive.stdout, check=True)
        compileall.compile_dir(place / "tree", quiet=2)
        made = Bench(place, server.acquire())
        code, said = made.pytest(["tests/queue/test_lease_numbers.py"])
        if code != 0:
            raise SystemExit(f"the tests do not pass without a mutant:\n{said}")
        made.admin(f"CREATE DATABASE {PRISTINE} TEMPLATE {TEMPLATE}")
        yield made
    finally:
        if made is not None:
            made.close()
        server.stop()
        shutil.rmtree(place, ignore_errors=True)
