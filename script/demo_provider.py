"""An OpenAI-compatible provider on loopback that the demo can take down."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

MODELS = """
[ai.models.writer]
fallback = ["spare"]
prompt_cost = 2.5
completion_cost = 10.0
[[ai.models.writer.deployments]]
model = "writer"
base_url = "http://127.0.0.1:{port}/v1"
api_key = "demo"
daily_budget = 1.0

[ai.models.spare]
prompt_cost = 5.0
completion_cost = 20.0
[[ai.models.spare.deployments]]
model = "spare"
base_url = "http://127.0.0.1:{port}/v1"
api_key = "demo"
daily_budget = 1.0

[ai.breaker]
failures = 3
recovery = 3.0
[ai.retry]
attempts = 2
base = 0.1
jitter = 0.1
"""


#: Answers of `writer` after which it fails, and answers of `spare` after which it recovers.
DOWN_AFTER, BACK_AFTER = 8, 12


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the demo handles them


class Provider:
    """Serves two models and counts the answers of each. After a few answers, `writer` is down for a while."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self._socket = socket.create_server(("127.0.0.1", 0))
        routes = [Route("/v1/chat/completions", self._complete, methods=["POST"])]
        config = uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off")
        self._server = _Server(config)

    @property
    def settings(self) -> str:
        """The section of shiftboss.toml that points a fleet to this provider."""
        return MODELS.format(port=self._socket.getsockname()[1])

    @property
    def failed(self) -> bool:
        """Whether `writer` has gone down."""
        return self.answers["writer"] >= DOWN_AFTER

    @property
    def recovered(self) -> bool:
        return self.answers["spare"] >= BACK_AFTER

    async def serve(self) -> None:
        await self._server.serve([self._socket])

    def stop(self) -> None:
        self._server.should_exit = True

    async def _complete(self, request: Request) -> JSONResponse:
        asked = await request.json()
        model = asked["model"]
        await asyncio.sleep(0.15)
        if model == "writer" and self.failed and not self.recovered:
            return JSONResponse({"error": {"message": "the service is overloaded"}}, 503)
        self.answers[model] += 1
        question = asked["messages"][-1]["content"]
        message = {"role": "assistant", "content": f"{model} says of {question!r}: it depends."}
        usage = {"prompt_tokens": 400, "completion_tokens": 60, "total_tokens": 460}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        number = self.answers.total()
        return JSONResponse(
            {"id": f"answer-{number}", "object": "chat.completion", "created": 0, "model": model,
             "choices": [choice], "usage": usage}
        )  # fmt: skip
