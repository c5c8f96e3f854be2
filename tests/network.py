"""Hosts on this machine: network namespaces with an address each, joined by a router that can drop what one sends
to another. Everything has a random name, and is gone with the network."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

WIRE = Path(__file__).with_name("wire.py")


class Link(NamedTuple):
    """Of each direction: seconds that a packet takes, and how many of them are lost, from 0 to 1."""

    delay: float = 0.0
    loss: float = 0.0


class Host:
    """One namespace. Processes started here see its network and nothing else of this machine's."""

    def __init__(self, name: str, space: str, address: str) -> None:
        self.name, self.space, self.address = name, space, address

    def command(self, words: Sequence[Any], user: str | None = None) -> list[str]:
        """The command line that runs `words` here, as that user."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        return ["ip", "netns", "exec", self.space, *become, *map(str, words)]

    def start(
        self,
        words: Sequence[Any],
        log: Path,
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return subprocess.Popen(
                self.command(words, user),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd="/",
                env=env,
            )

    def pids(self) -> set[int]:
        return {int(pid) for pid in ip("netns", "pids", self.space).split()}

    def run(self, words: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(words), capture_output=True, text=True, **options)


class Network:
    """A router and its hosts."""

    def __init__(self) -> None:
        self._tag = f"sb{secrets.token_hex(3)}"
        self._router = f"{self._tag}-router"
        self._wires: list[subprocess.Popen[bytes]] = []
        self.hosts: dict[str, Host] = {}

    def start(self) -> None:
        ip("netns", "add", self._router)
        run("ip", "netns", "exec", self._router, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def host(self, name: str, link: Link | None = None) -> Host:
        """A new host, joined by a perfect cable or by one like `link`."""
        number = len(self.hosts) + 1
        host = Host(name, f"{self._tag}-{name}", f"10.99.{number}.2")
        ip("netns", "add", host.space)
        self.hosts[name] = host
        port = f"port{number}"
        self._cable(host, port, link)
        ip("-n", self._router, "address", "add", f"10.99.{number}.1/30", "dev", port)
        ip("-n", self._router, "link", "set", port, "up")
        ip("-n", host.space, "address", "add", f"{host.address}/30", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", host.space, "link", "set", device, "up")
        ip("-n", host.space, "route", "add", "default", "via", f"10.99.{number}.1")
        return host

    def cut(self, one: Host, *others: Host) -> None:
        """Packets between that host and those, or everybody if none is named, vanish without a word."""
        self._rules("add", one, others)

    def heal(self, one: Host, *others: Host) -> None:
        """Undo the same call of `cut`."""
        self._rules("del", one, others)

    def stop(self) -> None:
        for host in self.hosts.values():
            while pids := host.pids():
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        for wire in self._wires:
            wire.kill()
            wire.wait()
        for space in (*(host.space for host in self.hosts.values()), self._router):
            ip("netns", "delete", space)

    def _cable(self, host: Host, port: str, link: Link | None) -> None:
        if link is not None and not netem():
            self._wire(host, port, link)
            return
        ip(
            "-n",
            self._router,
            "link",
            "add",
            port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            host.space,
        )
        for space, device in ((self._router, port), (host.space, "eth0")) if link is not None else ():
            assert link is not None
            shape = ("delay", f"{link.delay * 1000:.0f}ms", "loss", f"{link.loss:.2%}")
            run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "netem", *shape)

    def _wire(self, host: Host, port: str, link: Link) -> None:
        """A cable whose packets pass through a process of ours."""
        words = [sys.executable, WIRE, port, "eth0", link.delay, link.loss]
        router = Host("router", self._router, "")
        wire = subprocess.Popen(router.command(words), stdout=subprocess.PIPE)
        self._wires.append(wire)
        assert wire.stdout is not None
        assert wire.stdout.readline() == b"up\n", "the wire did not start"
        ip("-n", self._router, "link", "set", "eth0", "netns", host.space)

    def _rules(self, verb: str, one: Host, others: Sequence[Host]) -> None:
        pairs: list[tuple[str, ...]]
        back: list[tuple[str, ...]]
        pairs = [("from", one.address, "to", other.address) for other in others] or [("from", one.address)]
        back = [("from", other.address, "to", one.address) for other in others] or [("to", one.address)]
        for words in (*pairs, *back):
            ip("-n", self._router, "rule", verb, *words, "priority", "10", "blackhole")


def missing() -> str | None:
    """Why this machine cannot have such a network; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not (shutil.which("ip") and shutil.which("setpriv")):
        return "iproute2 is not installed"
    return _trial()


@functools.cache
def _trial() -> str | None:
    """Make and remove a small network: a container's root may do neither."""
    tried = Network()
    try:
        tried.start()
        tried.cut(tried.host("trial", Link(0.001)))
    except (OSError, AssertionError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {getattr(error, 'stderr', None) or error}"
    finally:
        with suppress(subprocess.CalledProcessError):
            tried.stop()
    return None


@functools.cache
def netem() -> bool:
    """Whether the kernel can slow down a link by itself."""
    space = f"sb{secrets.token_hex(3)}-netem"
    ip("netns", "add", space)
    try:
        run("tc", "-n", space, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        ip("netns", "delete", space)
    return True


@contextmanager
def network() -> Iterator[Network]:
    made = Network()
    try:
        made.start()
        yield made
    finally:
        made.stop()


def ip(*words: str) -> str:
    return run("ip", *words)


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
