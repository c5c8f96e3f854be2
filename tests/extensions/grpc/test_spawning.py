"""Processes that a command starts while it uses gRPC."""

from __future__ import annotations

import os
import subprocess
import sys

# What a fed worker does under load: calls over gRPC, and children for handlers in process mode.
SCRIPT = """
import asyncio
from shiftboss.cli import main

assert main(["completion", "bash"]) == 0
import grpc, uvloop

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.answer)

    async def answer(self, request, context):
        return request

async def spawn():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    call = grpc.aio.insecure_channel(f"127.0.0.1:{port}").unary_unary("/a/b")

    async def busy():
        while True:
            await call(b"x")
            await asyncio.sleep(0.002)

    calls = [asyncio.create_task(busy()) for _ in range(4)]
    codes = set()
    for _ in range(150):
        child = await asyncio.create_subprocess_exec("true", start_new_session=True)
        codes.add(await child.wait())
        await asyncio.sleep(0.005)
    print(codes)
    for one in calls:
        one.cancel()

with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
    runner.run(spawn())
"""


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}


def test_no_child_dies_between_fork_and_exec() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, env=_plain()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "{0}", done.stderr
