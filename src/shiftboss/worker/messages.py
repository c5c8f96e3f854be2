"""JSON messages between a worker and the process that runs a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import orjson

from shiftboss import tracing
from shiftboss.lifecycle.logs import configured_level
from shiftboss.model.errors import ShiftbossError, UsageError
from shiftboss.model.log import LogLine
from shiftboss.model.step import LeaseLost, Loaded, Part, Step
from shiftboss.model.task import Claimed, Outcome
from shiftboss.worker.spool import OUTCOMES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from shiftboss.worker.context import ReportProgress
    from shiftboss.worker.handlers import Handler
    from shiftboss.worker.steps import StepStore

HEADER: Final = 4
MOST_IN_FLIGHT: Final = 64 * 1024 * 1024


class ChildDied(ShiftbossError):
    """The process that ran the handler ended without an outcome."""

    kind: Literal["crashed", "lost"] = "crashed"


class MachineLost(ChildDied):
    """The machine that ran the handler is gone. The task is not to blame."""

    kind = "lost"


class TaskChannel(Protocol):
    """A connection to the process that runs one task."""

    async def send(self, message: dict[str, Any]) -> None: ...

    async def receive(self, lease: int) -> dict[str, Any]:
        """Return the next message about this lease. Raises ChildDied."""
        ...


class Callbacks(NamedTuple):
    """Handles messages of a task that runs in another process: progress, steps, logs."""

    report: ReportProgress
    steps: StepStore | None
    on_loaded: Callable[[Loaded], None]
    on_logs: Callable[[list[LogLine]], None]


def framed(message: dict[str, Any]) -> bytes:
    body = orjson.dumps(message, default=str)
    return len(body).to_bytes(HEADER, "big") + body


async def read(stream: asyncio.StreamReader) -> dict[str, Any]:
    """Read the next message. Raises IncompleteReadError or ConnectionError at the end of the stream."""
    size = int.from_bytes(await stream.readexactly(HEADER), "big")
    message: dict[str, Any] = orjson.loads(await stream.readexactly(size))
    return message


def start_request(handler: Handler, task: Claimed, seconds: float | None) -> dict[str, Any]:
    """Return the first message: which function to call, for which task."""
    return {
        "module": handler.function.__module__,
        "name": handler.function.__qualname__,
        "task": task._asdict() | {"timeout": None},
        "seconds": seconds,
        "version": handler.version,
        "log_level": configured_level(),
        "trace": tracing.carrier(),
    }


async def outcome_of(channel: TaskChannel, task: Claimed, callbacks: Callbacks) -> Outcome:
    """Handle messages until the handler has ended, and return its outcome."""
    while "outcome" not in (answer := await channel.receive(task.lease)):
        if "progress" in answer:
            callbacks.report(task.lease, task.id, answer["progress"], answer["message"])
        elif "logs" in answer:
            attempt = task.id, task.lease, task.attempt
            callbacks.on_logs([LogLine(*attempt, *fields) for fields in answer["logs"]])
        else:
            await channel.send(await _handle_step(answer, task, callbacks))
    fields = answer["outcome"]
    if fields.get("result") is not None:
        fields["result"] = fields["result"].encode()
    outcome: Outcome = OUTCOMES[answer["kind"]](**fields)
    return outcome


async def _handle_step(request: dict[str, Any], task: Claimed, callbacks: Callbacks) -> dict[str, Any]:
    """Load the steps of a task, store one, or emit a part. Return the reply."""
    steps = callbacks.steps
    try:
        if steps is None:
            raise UsageError("durable steps and waits need a worker with a database")
        if "load" in request:
            loaded = await steps.load(task, request["load"])
            callbacks.on_loaded(loaded)
            found = [[*key, *recorded] for key, recorded in loaded.steps.items()]
            return {"steps": found, "ran": loaded.ran, "most": loaded.most}
        if "emit" in request:
            step, text = request["emit"]
            await steps.emit(Part(task.id, task.lease, step, text.encode()))
            return {}
        await steps.flush(task.lease)
        name, ordinal, seconds, result = request["store"]
        text = None if result is None else result.encode()
        await steps.store(Step(task.id, task.lease, name, ordinal, seconds, text))
        return {}
    except LeaseLost:
        return {"lost": True}
    except ShiftbossError as error:
        return {"error": error.message}
