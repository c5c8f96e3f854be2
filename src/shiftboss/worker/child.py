"""The main of a child process: read a task, run its handler, answer; until the parent closes the pipe."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading
from functools import reduce
from typing import Any, BinaryIO
from uuid import UUID

import orjson

from shiftboss.model.task import Claimed, Outcome
from shiftboss.worker.children import HEADER
from shiftboss.worker.context import Context
from shiftboss.worker.executor import Attempt, classify, encode
from shiftboss.worker.handlers import Handler
from shiftboss.worker.spool import claimed_from_json

PR_SET_PDEATHSIG = 1


class Voice:
    """Our end of the pipe. A copy of this process that a handler forked has none."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._owner = os.getpid()
        self._lock = threading.Lock()

    @property
    def ours(self) -> bool:
        return os.getpid() == self._owner

    def say(self, lease: int, **message: Any) -> None:
        """Every message names its lease: what a thread says after its task has ended is told apart."""
        if not self.ours:
            return
        body = orjson.dumps({"lease": lease, **message}, default=bytes.decode)
        with self._lock:
            self._answers.write(len(body).to_bytes(HEADER, "big") + body)
            self._answers.flush()


def main() -> None:
    if sys.platform == "linux":  # a busy handler does not see the closed pipe: die with the worker
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to handle
    # Handlers may print: what they print goes to stderr, the pipe is ours alone.
    requests, voice = sys.stdin.buffer, Voice(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    while header := requests.read(HEADER):
        request = orjson.loads(requests.read(int.from_bytes(header, "big")))
        task = claimed_from_json(request["task"])
        voice.say(task.lease, begun=True)
        outcome = _run(task, request, voice)
        if not voice.ours:  # the handler forked, and this is the copy: only one of us goes on
            os._exit(0)
        voice.say(task.lease, kind=type(outcome).__name__, outcome=outcome._asdict())


def _run(task: Claimed, request: dict[str, Any], voice: Voice) -> Outcome:
    def report(lease: int, id: UUID, percent: int, message: str | None) -> None:
        voice.say(lease, progress=percent, message=message)

    try:
        function = _function(request["module"], request["name"])
        handler = Handler(name=task.task_type, function=function, mode="process")
        arguments = handler.bind(task.params)
        positional = (Context(task, request["seconds"], report),) if handler.wants_context else ()
        return encode(task.task_type, function(*positional, **arguments))
    except BaseException as error:
        return classify(Attempt(task, since=0.0), error)


def _function(module: str, name: str) -> Any:
    """The handler's function; a decorator may have put an object with `.function` in its place."""
    value = reduce(getattr, name.split("."), importlib.import_module(module))
    return getattr(value, "function", value)


if __name__ == "__main__":
    main()
