"""The embedded server when processes crash, race or misuse it. Each test has a server in its own directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.layout import Layout
from shiftboss.model.errors import DatabaseError, EmbeddedServerError

Eventually = Callable[..., Awaitable[Any]]
FAST = {"fsync": "off", "shared_buffers": "16MB"}
HOLD = """
import sys
from pathlib import Path
from shiftboss.db.embedded import EmbeddedServer
print(EmbeddedServer(Path(sys.argv[1]), settings={"fsync": "off"}, linger=0).acquire(), flush=True)
sys.stdin.read()
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")


class Servers:
    """Makes users of servers, and sees that nothing is left running."""

    def __init__(self, root: Path) -> None:
        self.data_dir = root / "data"
        self._made: list[EmbeddedServer] = []

    def __call__(self, data_dir: Path | None = None, **options: Any) -> EmbeddedServer:
        options = {"settings": FAST, "linger": 0} | options
        self._made.append(EmbeddedServer(data_dir or self.data_dir, **options))
        return self._made[-1]

    def close(self) -> None:
        for server in self._made:
            server.release()
            server.stop()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(tmp_path)
    yield servers
    servers.close()


@contextlib.contextmanager
def another_user(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that uses the server until its stdin is closed or it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(url: str | None) -> Any:
    with psycopg.connect(url or "", connect_timeout=5) as conn:
        row = conn.execute("SELECT 42").fetchone()
        return row and row[0]


def answers(url: str) -> bool:
    with contextlib.suppress(psycopg.OperationalError):
        return bool(answer(url))
    return False


def postmaster(server: EmbeddedServer) -> int:
    state = server.running()
    assert state is not None
    return state.postmaster


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_its_last_user_stops_it(servers: Servers, eventually: Eventually) -> None:
    first, second = servers(), servers()
    assert first.acquire() == second.acquire()
    pid = postmaster(first)
    first.release()
    assert answer(second.url()) == 42
    second.release()
    await eventually(lambda: gone(pid))
    assert second.running() is None


async def test_it_stays_as_long_as_it_was_told(
    servers: Servers, tmp_path: Path, eventually: Eventually
) -> None:
    kept, lingering = servers(), servers(tmp_path / "lingering", linger=600)
    kept.acquire()
    kept.keep()
    lingering.acquire()
    for server in (kept, lingering):
        server.release()
    brief = servers(tmp_path / "brief")
    brief.acquire()
    brief.release()
    await eventually(lambda: brief.running() is None)  # and those that ended their use before it?
    assert kept.running()
    assert lingering.running()
    assert kept.stop()
    kept.acquire()
    kept.release()
    await eventually(lambda: kept.running() is None)


async def test_a_killed_user_is_no_user(servers: Servers, eventually: Eventually) -> None:
    with another_user(servers.data_dir) as user:
        assert user.stdout is not None
        url = user.stdout.readline().strip()
        assert answer(url) == 42
        pid = postmaster(servers())
        user.send_signal(signal.SIGKILL)
        await eventually(lambda: gone(pid))


async def test_a_user_killed_while_starting_it_leaves_nothing(
    servers: Servers, eventually: Eventually
) -> None:
    layout = Layout(servers.data_dir)
    with another_user(servers.data_dir) as user:
        await eventually(lambda: layout.keeper_pid())
        user.send_signal(signal.SIGKILL)
        user.wait()
        await eventually(lambda: layout.keeper_pid() is None, timeout=30)
    assert answer(servers().acquire()) == 42


async def test_a_killed_postmaster_comes_back_with_its_data(servers: Servers, eventually: Eventually) -> None:
    server = servers()
    url = server.acquire()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 1 AS n")
    pid = postmaster(server)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: server.running() and postmaster(server) != pid, timeout=20)
    assert server.url() == url
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT n FROM kept").fetchall() == [(1,)]


async def test_an_open_database_survives_a_killed_postmaster(
    servers: Servers, eventually: Eventually
) -> None:
    server = servers()
    async with await Database.open(server.acquire()) as db:
        pid = postmaster(server)
        os.kill(pid, signal.SIGKILL)

        await eventually(lambda: server.running() and postmaster(server) != pid, timeout=20)
        await eventually(lambda: works(db), timeout=60)


async def works(db: Database) -> bool:
    with contextlib.suppress(DatabaseError):
        return await db.fetch("SELECT 1 AS one") == [{"one": 1}]
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a server with its keeper")
async def test_a_killed_keeper_takes_the_server_along(servers: Servers, eventually: Eventually) -> None:
    server = servers()
    url = server.acquire()
    pid, keeper = postmaster(server), Layout(servers.data_dir).keeper_pid()
    assert keeper
    os.kill(keeper, signal.SIGKILL)
    await eventually(lambda: gone(pid), timeout=20)
    assert server.running() is None
    assert servers().acquire() == url  # the same port, the same password


async def test_a_killed_keeper_and_postmaster_are_recovered_from(
    servers: Servers, eventually: Eventually
) -> None:
    server = servers()
    server.acquire()
    pid, keeper = postmaster(server), Layout(servers.data_dir).keeper_pid()
    assert keeper
    os.kill(keeper, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert answer(servers().acquire()) == 42


async def test_an_open_database_outlives_keeper_and_server(servers: Servers, eventually: Eventually) -> None:
    layout = Layout(servers.data_dir)
    servers()  # sees to the end of what the database starts
    async with await Database.open(data_dir=servers.data_dir) as db:
        keeper = layout.keeper_pid()
        assert keeper
        os.kill(keeper, signal.SIGKILL)
        await eventually(lambda: layout.keeper_pid() != keeper)
        await eventually(lambda: works(db), timeout=60)


async def test_a_stopped_server_stays_stopped(servers: Servers) -> None:
    server = servers()
    server.acquire()
    server.stop()
    server.revive()
    assert server.running() is None


async def test_pid_files_of_strangers_are_not_believed(servers: Servers, eventually: Eventually) -> None:
    server = servers()
    server.acquire()
    server.stop()
    server.release()
    layout = Layout(servers.data_dir)
    pid_file = layout.cluster / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{layout.cluster}\n1\n5432\n/tmp\n127.0.0.1\n1 1\nready\n")
    layout.keeper_lock.write_text(str(os.getpid()))
    assert server.running() is None
    assert server.stop() is False
    assert answer(server.acquire()) == 42


async def test_two_shells_at_once_start_one_server(servers: Servers) -> None:
    urls = await asyncio.gather(*(asyncio.to_thread(servers().acquire) for _ in range(4)))
    assert len(set(urls)) == 1
    assert answer(urls[0]) == 42


async def test_a_psql_with_our_url_keeps_it_up(servers: Servers, eventually: Eventually) -> None:
    server = servers()
    url = server.acquire()
    pid = postmaster(server)
    with psycopg.connect(url) as conn:
        server.release()
        # The keeper looked for users and clients at least once more when it has touched the users' file.
        users_lock = Layout(servers.data_dir).users_lock
        seen = users_lock.stat().st_mtime_ns
        await eventually(lambda: users_lock.stat().st_mtime_ns > seen)
        assert conn.execute("SELECT 42").fetchone() == (42,)
    await eventually(lambda: gone(pid))


async def test_a_taken_port_is_given_up(servers: Servers, eventually: Eventually) -> None:
    server = servers()
    server.acquire()
    state = server.running()
    assert state is not None
    server.stop()
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", state.port))
        thief.listen()
        url = server.acquire()
        assert f":{state.port}/" not in url
        assert answer(url) == 42


async def test_stop_stops_it_whoever_uses_it(servers: Servers) -> None:
    server = servers()
    server.acquire()
    pid = postmaster(server)
    assert servers().stop() is True
    assert gone(pid)
    assert answer(server.acquire()) == 42


@pytest.mark.parametrize("name", ["with spaces and äöü 日本", "long-" + "x" * 120])
async def test_any_path_will_do(servers: Servers, tmp_path: Path, name: str) -> None:
    server = servers(tmp_path / name)
    assert answer(server.acquire()) == 42
    state = server.running()
    assert state is not None
    socket_url = f"host='{state.socket_dir}' port={state.port} user=shiftboss dbname=shiftboss"
    password = (tmp_path / name / "password").read_text()
    with psycopg.connect(socket_url, password=password) as conn:
        assert conn.execute("SELECT inet_server_addr()").fetchone() == (None,)


async def test_only_the_password_opens_it(servers: Servers) -> None:
    server = servers()
    url = server.acquire()
    state = server.running()
    assert state is not None
    assert stat.S_IMODE((servers.data_dir / "password").stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(state.socket_dir).stat().st_mode) == 0o700
    for host in ("127.0.0.1", state.socket_dir):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(
                host=host, port=state.port, user="shiftboss", dbname="shiftboss", password="guess"
            )
    assert answer(url) == 42


async def test_parent_directories_keep_their_modes(servers: Servers, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    parents = [closed, *closed.parents]
    before = [stat.S_IMODE(folder.stat().st_mode) for folder in parents]
    assert answer(servers(closed / "inner" / "data").acquire()) == 42
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in parents] == before


async def test_an_unwritable_place_says_so(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match="cannot write to the data directory"):
        servers(tmp_path / "file" / "data").acquire()


ORDINARY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def ordinary_python(env: dict[str, str]) -> str | None:
    """A Python that an ordinary user can start; this one may live in a home that is closed to him."""
    starts_another = "import subprocess as s, sys; s.check_call([sys.executable, '-c', 'import shiftboss'])"
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with contextlib.suppress(OSError):
            command = [*ORDINARY, python, "-c", starts_another]
            if not subprocess.run(command, env=env, stderr=subprocess.DEVNULL, check=False).returncode:
                return python
    return None


@as_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv")
async def test_an_ordinary_user_runs_it_as_himself(eventually: Eventually) -> None:
    home = Path(tempfile.mkdtemp(prefix="ordinary-", dir="/tmp"))  # pytest's own is closed to him
    env = os.environ | {"HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    if (python := ordinary_python(env)) is None:
        pytest.skip("no Python here is open to ordinary users")
    try:
        os.chown(home, 65534, 65534)
        program = HOLD.replace("sys.stdin.read()", "import os; print(os.geteuid())")
        command = [*ORDINARY, python, "-c", program, str(home / "data")]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-1] == "65534"
        assert (home / "data" / "postgresql-18").stat().st_uid == 65534
        await eventually(lambda: Layout(home / "data").keeper_pid() is None)
    finally:
        shutil.rmtree(home)


@as_root
async def test_programs_under_a_closed_directory_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shiftboss.db import programs as installed

    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    home = closed / installed.PACKAGE
    shutil.copytree(installed.package_home() / installed.INSTALL / "bin", home / installed.INSTALL / "bin")
    monkeypatch.setattr(installed, "package_home", lambda: home)
    monkeypatch.setattr(installed, "SHARED_COPIES", tmp_path / "copies")
    account = installed.Account(65534, 65534)
    found = installed.programs(account)
    assert found.is_relative_to(tmp_path / "copies")
    assert (found / "postgres").is_file()
    assert installed.programs(account) == found
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
