"""The main of a child process: runs the handlers of tasks that it receives until the pipe is closed."""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, BinaryIO
from uuid import UUID

import orjson

from shiftboss import tracing
from shiftboss.db.steps import loaded
from shiftboss.lifecycle.logs import configure_logs, configured_level
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.step import LeaseLost, Loaded, Part, Step
from shiftboss.model.task import Claimed, Outcome
from shiftboss.worker.blocking import SyncContext, drive
from shiftboss.worker.context import current
from shiftboss.worker.executor import Attempt, classify, encode
from shiftboss.worker.handlers import Handler, declared
from shiftboss.worker.logs import Buffer, Capture
from shiftboss.worker.messages import HEADER
from shiftboss.worker.spool import claimed_from_json
from shiftboss.worker.threads import with_own_connections

PR_SET_PDEATHSIG = 1


class ReplyPipe:
    """Sends messages to the worker. In a process that a handler forked, it sends nothing."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._owner = os.getpid()
        self._lock = threading.Lock()

    @property
    def ours(self) -> bool:
        return os.getpid() == self._owner

    def send(self, lease: int, **message: Any) -> None:
        """Send a message with its lease, so that late messages of a former task can be ignored."""
        if not self.ours:
            return
        body = orjson.dumps({"lease": lease, **message}, default=bytes.decode)
        with self._lock:
            self._answers.write(len(body).to_bytes(HEADER, "big") + body)
            self._answers.flush()


class PipeSteps:
    """Loads and stores the steps of the current task through the pipe. Its methods block."""

    where = None

    def __init__(self, pipe: ReplyPipe, requests: BinaryIO) -> None:
        self._pipe, self._requests = pipe, requests
        self._lock = threading.Lock()

    async def load(self, task: Claimed, version: str | None) -> Loaded:
        answer = self._ask(task.lease, load=version)
        return loaded(answer["steps"], answer["ran"], answer["most"])

    async def store(self, step: Step) -> None:
        result = None if step.result is None else step.result.decode()
        self._ask(step.lease, store=[step.name, step.ordinal, step.seconds, result])

    async def emit(self, part: Part) -> None:
        self._ask(part.lease, emit=[part.step, part.text.decode()])

    async def flush(self, lease: int) -> None:
        """Do nothing: the worker flushes before it stores a step and before it reports."""

    def _ask(self, lease: int, **request: Any) -> dict[str, Any]:
        with self._lock:
            self._pipe.send(lease, **request)
            answer = _read(self._requests)
        if answer is None or "lost" in answer:
            raise LeaseLost("the lease of this task is gone")
        if "error" in answer:
            raise ShiftbossError(answer["error"])
        return answer


class ChildCapture(Capture):
    """Captures what the current task logs in any thread, and sends each line to the worker at once."""

    def __init__(self, pipe: ReplyPipe) -> None:
        super().__init__()
        self._pipe = pipe
        self._buffer: Buffer | None = None

    @contextmanager
    def of(self, task: Claimed, level: str | None) -> Iterator[None]:
        """Capture the lines of this task. If the worker's command configured logging, use its level."""
        if level is not None and configured_level() is None:
            configure_logs(level)
        self._buffer = Buffer(task)
        try:
            yield
        finally:
            self._send(self._buffer, last=True)
            self._buffer = None

    def attach(self) -> None:
        logging.getLogger().addHandler(self)  # does nothing if it is attached already

    def detach(self) -> None:
        logging.getLogger().removeHandler(self)

    def buffer(self) -> Buffer | None:
        return self._buffer

    def added(self, buffer: Buffer) -> None:
        self._send(buffer)

    def _send(self, buffer: Buffer, last: bool = False) -> None:
        if lines := buffer.take(last):
            self._pipe.send(buffer.task.lease, logs=[line[3:] for line in lines])


def _read(requests: BinaryIO) -> dict[str, Any] | None:
    header = requests.read(HEADER)
    if not header:
        return None
    message: dict[str, Any] = orjson.loads(requests.read(int.from_bytes(header, "big")))
    return message


def main() -> None:
    if sys.platform == "linux":  # end with the worker: a busy handler does not notice the closed pipe
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles Ctrl+C
    # Send what handlers print to stderr. Only messages may go into the pipe.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Run tasks one after the other until the worker closes its end of the pipe."""
    pipe = ReplyPipe(answers)
    logs = ChildCapture(pipe)
    try:
        _serve(requests, pipe, PipeSteps(pipe, requests), logs)
    finally:
        logs.detach()


def _serve(requests: BinaryIO, pipe: ReplyPipe, steps: PipeSteps, logs: ChildCapture) -> None:
    while (request := _read(requests)) is not None:
        task = claimed_from_json(request["task"])
        pipe.send(task.lease, begun=True)
        with logs.of(task, request["log_level"]):
            outcome = _run(task, request, pipe, steps, logs)
            tracing.flush()  # a child is killed when it is no longer needed
        if not pipe.ours:  # the handler forked and this is the copy, which must not continue
            os._exit(0)
        pipe.send(task.lease, kind=type(outcome).__name__, outcome=outcome._asdict())


def _run(
    task: Claimed, request: dict[str, Any], pipe: ReplyPipe, steps: PipeSteps, logs: ChildCapture
) -> Outcome:
    def report(lease: int, id: UUID, percent: int, message: str | None) -> None:
        pipe.send(lease, progress=percent, message=message)

    handler = None
    try:
        handler = _handler(request["module"], request["name"], task.task_type)
        logs.attach()  # after the import, because the module may configure logging
        function = handler.function
        arguments = handler.bind(task.params)
        version = request["version"]
        context = SyncContext(task, request["seconds"], report, steps=steps, version=version)
        context.wait = drive
        current.set(lambda: context)
        tracing.continued(request["trace"])
        positional = (context,) if handler.wants_context else ()
        call = partial(function, *positional, **arguments)
        return encode(task.task_type, with_own_connections(call))
    except BaseException as error:
        return classify(Attempt(task, since=0.0), error, handler)


def _handler(module: str, name: str, task_type: str) -> Handler:
    """Return the handler with its options. A decorator may have replaced the function by an object."""
    value: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    function = getattr(value, "function", value)
    known = declared(function).get(task_type)
    return known or Handler(name=task_type, function=function, mode="process")


if __name__ == "__main__":
    main()
