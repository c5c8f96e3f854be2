"""A real transaction-mode pooler before a test's database."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

PGBOUNCER = Path("/usr/sbin/pgbouncer")

needs_pooler = pytest.mark.skipif(
    not PGBOUNCER.exists() and os.environ.get("CI") != "true", reason="pgbouncer is not installed"
)


@asynccontextmanager
async def pooler(database_url: str, size: int = 2) -> AsyncIterator[str]:
    """The URL of the same database through PgBouncer, with `size` connections to the server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = urlsplit(database_url)
    place = Path(tempfile.mkdtemp(prefix="shiftboss-pooler-"))
    place.chmod(0o755)  # the pooler does not run as root
    config = place / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n{url.path[1:]} = host={url.hostname} port={url.port} user={url.username} password={url.password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = transaction\n"
        f"default_pool_size = {size}\nunix_socket_dir =\nignore_startup_parameters = extra_float_digits\n"
    )
    user = ["-u", "nobody"] if os.getuid() == 0 else []
    process = await asyncio.create_subprocess_exec(str(PGBOUNCER), "-q", *user, str(config))
    try:
        await _listening(port)
        yield f"postgresql://{url.username}@127.0.0.1:{port}{url.path}"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        shutil.rmtree(place)


async def _listening(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
