"""Steps and streams of a worker without a database, which are sent to its coordinator in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

import grpc
import orjson

from shiftboss.db.steps import loaded
from shiftboss.extensions.grpc.link import LOST_SESSION, CoordinatorUnavailable, Link, locked_tasks
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.model.codec import current
from shiftboss.model.errors import DatabaseError
from shiftboss.model.step import Loaded, Part, Step

#: Maximum bytes of one message, well below the smallest limit of a coordinator.
MOST_BYTES = 1024 * 1024
NOT_OURS = {*LOST_SESSION, grpc.StatusCode.PERMISSION_DENIED}
Item = TypeVar("Item", Step, Part)


class RemoteSteps:
    """A `StepLink` to the coordinator of this worker. `who` returns the worker's ID and session."""

    def __init__(self, link: Link, who: Callable[[], dict[str, str]]) -> None:
        self._link = link
        self._who = who

    async def begin(self, tasks: Sequence[tuple[UUID, int, str | None]]) -> dict[UUID, Loaded]:
        begun = [pb.Begun(held=_held(id, lease), version=version or "") for id, lease, version in tasks]
        answer = await self._call("LoadSteps", pb.LoadStepsRequest(**self._who(), tasks=begun))
        if answer is None:
            return {}
        return {
            UUID(one.task_id): loaded(
                current().open(orjson.loads(one.steps_json)),
                one.ran_seconds,
                one.most_bytes,
                one.version or None,
            )
            for one in answer.tasks
        }

    async def store(self, steps: Sequence[Step]) -> list[UUID]:
        stale: list[UUID] = []
        for some in _chunks(steps, lambda step: len(step.result or b"") + len(step.also or b"")):
            request = pb.StoreStepsRequest(**self._who(), steps=[_step(step) for step in some])
            stale += await self._sent("StoreSteps", request, some)
        return stale

    async def append(self, parts: Sequence[Part]) -> list[UUID]:
        stale: list[UUID] = []
        for some in _chunks(parts, lambda part: len(part.text)):
            request = pb.AppendPartsRequest(**self._who(), parts=[_part(part) for part in some])
            stale += await self._sent("AppendParts", request, some)
        return stale

    async def ask(self, what: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of an extension of the coordinator. Raise DatabaseError if it is refused."""
        text = orjson.dumps(arguments, default=str).decode()
        request = pb.AskRequest(**self._who(), what=what, arguments_json=text)
        answer: pb.AskResponse | None = await self._call("Ask", request)
        if answer is None:
            raise CoordinatorUnavailable("the session of this worker is no longer valid")
        return orjson.loads(answer.answer_json)

    async def _sent(self, method: str, request: Any, items: Sequence[Item]) -> list[UUID]:
        answer = await self._call(method, request)
        return [item.task_id for item in items] if answer is None else [UUID(id) for id in answer.stale]

    async def _call(self, method: str, request: Any) -> Any:
        """Return the answer, or None if the worker has lost its session or the task."""
        try:
            return await self._link.call(method, request)
        except CoordinatorUnavailable as error:
            raise (locked_tasks(error.__cause__) or error) from error
        except grpc.aio.AioRpcError as error:
            if error.code() in NOT_OURS:
                return None
            # The values are invalid, so a retry would be refused as well.
            raise DatabaseError(f"{method} was refused: {error.details()}", sqlstate="22000") from error


def _held(id: UUID, lease: int) -> pb.Held:
    return pb.Held(task_id=str(id), lease=lease)


def _step(step: Step) -> pb.StoredStep:
    return pb.StoredStep(
        held=_held(step.task_id, step.lease),
        name=step.name,
        ordinal=step.ordinal,
        seconds=max(step.seconds, 0.0),
        result_json="" if step.result is None else current().json(step.result).decode(),
        also_json=(step.also or b"").decode(),
    )


def _part(part: Part) -> pb.StreamPart:
    return pb.StreamPart(
        held=_held(part.task_id, part.lease),
        step=part.step or "",
        part_json=current().json(part.text).decode(),
        place=part.place,
    )


def _chunks(items: Sequence[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    some: list[Item] = []
    total = 0
    for item in items:
        total += size(item) + 200
        if some and total > MOST_BYTES:
            yield some
            some, total = [], size(item) + 200
        some.append(item)
    if some:
        yield some
