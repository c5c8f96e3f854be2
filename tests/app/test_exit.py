"""Programs that end: with an open database while its pool connects, and on an empty database."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import pytest

DECLARED = """
import asyncio, sys
from shiftboss import App
app = App("exit", url=sys.argv[1])
@app.task()
async def hello() -> None: ...
"""
#: Two queries at a time make the pool grow. The second one gets the connection of the first.
PROGRAMS = {
    "async": """
async def main() -> None:
    await hello.enqueue()
    db = await app.database()
    await asyncio.gather(*(db.fetch("SELECT FROM pg_sleep(0.1)") for _ in range(2)))
asyncio.run(main())
""",
    "sync": """
from concurrent.futures import ThreadPoolExecutor
app.sync.enqueue(hello.call())
with ThreadPoolExecutor() as threads:
    list(threads.map(app.sync.db.fetch, ["SELECT FROM pg_sleep(0.1)"] * 2))
""",
}
#: The check of the schema, and the connection that the pool begins with.
ANSWERED = 2


@pytest.fixture
async def slow_url(database_url: str) -> AsyncIterator[str]:
    """A server that answers the first connections only, as one under load does for a while."""
    to, accepted = urlsplit(database_url), list[asyncio.Task[None]]()

    async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    async def serve(client: asyncio.StreamReader, answers: asyncio.StreamWriter, answered: bool) -> None:
        if answered:
            server, requests = await asyncio.open_connection(to.hostname, to.port)
            await asyncio.gather(forward(client, requests), forward(server, answers))
        else:
            await client.read()
        answers.close()

    def accept(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        answered = len(accepted) < ANSWERED
        accepted.append(asyncio.create_task(serve(client, answers, answered)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        user, port = to.netloc.rpartition("@")[0], server.sockets[0].getsockname()[1]
        yield urlunsplit(to._replace(netloc=f"{user}@127.0.0.1:{port}"))
    assert len(accepted) > ANSWERED, "the pool did not connect again"
    await asyncio.gather(*accepted, return_exceptions=True)


@pytest.mark.parametrize("kind", PROGRAMS)
async def test_a_program_ends_while_its_pool_connects(kind: str, slow_url: str) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        DECLARED + PROGRAMS[kind],
        slow_url,
        env=os.environ,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            _, errors = await program.communicate()
    except TimeoutError:
        program.kill()
        await program.wait()
        raise
    assert program.returncode == 0, errors
    assert b"Traceback" not in errors
    assert b"error connecting" not in errors


async def test_a_program_on_an_empty_database_says_what_to_run(empty_database_url: str) -> None:
    command = (sys.executable, "-c", DECLARED + PROGRAMS["async"], empty_database_url)
    program = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await program.communicate()
    assert errors.decode().splitlines()[-1] == "hint: run `shiftboss db migrate`"
