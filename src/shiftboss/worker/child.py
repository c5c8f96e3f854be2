"""The main of a child process: read a task, run its handler, answer; until the parent closes the pipe."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from functools import reduce
from typing import Any, BinaryIO
from uuid import UUID

import orjson

from shiftboss.model.task import Complete, Fail
from shiftboss.worker.children import HEADER
from shiftboss.worker.context import Context
from shiftboss.worker.executor import describe, encode
from shiftboss.worker.handlers import Handler
from shiftboss.worker.spool import claimed_from_json

PR_SET_PDEATHSIG = 1


def main() -> None:
    if sys.platform == "linux":  # a busy handler does not see the closed pipe: die with the worker
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to handle
    # Handlers may print: what they print goes to stderr, the pipe is ours alone.
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while header := requests.read(HEADER):
        request = orjson.loads(requests.read(int.from_bytes(header, "big")))
        _send(answers, _serve(request, answers))


def _serve(request: dict[str, Any], answers: BinaryIO) -> dict[str, Any]:
    try:
        task = claimed_from_json(request["task"])
        function = _function(request["module"], request["name"])
        handler = Handler(name=task.task_type, function=function, mode="process")
        arguments = handler.bind(task.params)

        def report(lease: int, id: UUID, percent: int, message: str | None) -> None:
            _send(answers, {"progress": percent, "message": message})

        positional = (Context(task, None, report),) if handler.wants_context else ()
        outcome = encode(task.task_type, function(*positional, **arguments))
    except BaseException as error:
        return {"error": describe(error)}
    if isinstance(outcome, Fail):
        return {"error": outcome.error}
    assert isinstance(outcome, Complete)
    return {"result": None if outcome.result is None else orjson.loads(outcome.result)}


def _function(module: str, name: str) -> Any:
    """The handler's function; a decorator may have put an object with `.function` in its place."""
    value = reduce(getattr, name.split("."), importlib.import_module(module))
    return getattr(value, "function", value)


def _send(answers: BinaryIO, message: dict[str, Any]) -> None:
    body = orjson.dumps(message)
    answers.write(len(body).to_bytes(HEADER, "big") + body)
    answers.flush()


if __name__ == "__main__":
    main()
