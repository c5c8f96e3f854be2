"""What a worker and the process that runs a handler say to each other, in JSON messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

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
    """The process that ran the handler ended before it answered."""

    kind: Literal["crashed", "lost"] = "crashed"


class PlaceLost(ChildDied):
    """The machine that ran the handler is gone, which is no fault of the task."""

    kind = "lost"


class Line(Protocol):
    """A way to the process that runs one task."""

    async def tell(self, message: dict[str, Any]) -> None: ...

    async def receive(self, lease: int) -> dict[str, Any]:
        """The next message about this lease. Raises ChildDied."""
        ...


class Ears:
    """What in the worker hears of a task that runs elsewhere: progress, steps, logs."""

    def __init__(
        self,
        report: ReportProgress,
        steps: StepStore | None = None,
        on_loaded: Callable[[Loaded], None] = lambda loaded: None,
        on_logs: Callable[[list[LogLine]], None] = lambda lines: None,
    ) -> None:
        self.report, self.steps, self.on_loaded, self.on_logs = report, steps, on_loaded, on_logs


def framed(message: dict[str, Any]) -> bytes:
    body = orjson.dumps(message, default=str)
    return len(body).to_bytes(HEADER, "big") + body


async def read(stream: asyncio.StreamReader) -> dict[str, Any]:
    """The next message; raises IncompleteReadError or ConnectionError at the end."""
    size = int.from_bytes(await stream.readexactly(HEADER), "big")
    message: dict[str, Any] = orjson.loads(await stream.readexactly(size))
    return message


def order(handler: Handler, task: Claimed, seconds: float | None) -> dict[str, Any]:
    """The first message: which function to call, for which task."""
    return {
        "module": handler.function.__module__,
        "name": handler.function.__qualname__,
        "task": task._asdict() | {"timeout": None},
        "seconds": seconds,
        "version": handler.version,
        "log_level": configured_level(),
        "trace": tracing.carrier(),
    }


async def outcome_of(line: Line, task: Claimed, ears: Ears) -> Outcome:
    """Listen and answer until the handler has ended."""
    while "outcome" not in (answer := await line.receive(task.lease)):
        if "progress" in answer:
            ears.report(task.lease, task.id, answer["progress"], answer["message"])
        elif "logs" in answer:
            known = task.id, task.lease, task.attempt
            ears.on_logs([LogLine(*known, *fields) for fields in answer["logs"]])
        else:
            await line.tell(await _about_steps(answer, task, ears))
    fields = answer["outcome"]
    if fields.get("result") is not None:
        fields["result"] = fields["result"].encode()
    outcome: Outcome = OUTCOMES[answer["kind"]](**fields)
    return outcome


async def _about_steps(question: dict[str, Any], task: Claimed, ears: Ears) -> dict[str, Any]:
    """What a process asks of the steps of its task: to load them, or to store one."""
    steps = ears.steps
    try:
        if steps is None:
            raise UsageError("durable steps and waits need a worker with a database")
        if "load" in question:
            loaded = await steps.load(task, question["load"])
            ears.on_loaded(loaded)
            found = [[*key, *recorded] for key, recorded in loaded.steps.items()]
            return {"steps": found, "ran": loaded.ran, "most": loaded.most}
        if "emit" in question:
            step, text = question["emit"]
            await steps.emit(Part(task.id, task.lease, step, text.encode()))
            return {}
        await steps.flush(task.lease)
        name, ordinal, seconds, result = question["store"]
        text = None if result is None else result.encode()
        await steps.store(Step(task.id, task.lease, name, ordinal, seconds, text))
        return {}
    except LeaseLost:
        return {"lost": True}
    except ShiftbossError as error:
        return {"error": error.message}
