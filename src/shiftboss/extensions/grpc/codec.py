"""Convert between messages and models, and validate every field of a message."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.refusals import invalid
from shiftboss.extensions.grpc.store import EndedAttempt
from shiftboss.model.arguments import compiled
from shiftboss.model.codec import is_sealed
from shiftboss.model.errors import UsageError
from shiftboss.model.log import LogLine
from shiftboss.model.step import MOST_PART, MOST_STEPS, Part, Step, check_name
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Capabilities, Member, ResourceLimits, Speed

PROTOCOL = 1
MAX_NAME = 200
MAX_NAMES = 1000
MAX_SLOTS = 10_000
MAX_AHEAD = 1000
MAX_LINES = 5000
MAX_LINE = 4100
MAX_SEALED_LINE = 25_000
MAX_METADATA = 16 * 1024
MAX_SCHEMA = 256 * 1024
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL. After an escaped backslash, u0000 is plain text."""
WAITS = ("sleep", "event", "child")
KINDS = ("failed", "timeout", "crashed")
SPEEDS: dict[str, Speed] = {"fast": "fast", "standard": "standard", "thorough": "thorough"}


def micros(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1_000_000)


def moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def name(text: str, what: str) -> str:
    """Return a valid name, or raise Refused."""
    if not text or len(text) > MAX_NAME or not text.isprintable() or text != text.strip():
        raise invalid(f"{what} must have 1 to {MAX_NAME} printable characters without surrounding spaces")
    return text


def names(texts: Sequence[str], what: str) -> list[str]:
    if len(texts) > MAX_NAMES:
        raise invalid(f"{what} has {len(texts)} entries; the maximum is {MAX_NAMES}")
    return [name(text, f"an entry of {what}") for text in texts]


def number(value: float, what: str, low: float, high: float) -> float:
    if not math.isfinite(value) or not low <= value <= high:
        raise invalid(f"{what} is {value}; it must be between {low:g} and {high:g}")
    return value


def uuid(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise invalid(f"{what} {text[:50]!r} is not a UUID") from None


def plain(text: str) -> str:
    """Replace NUL characters, which PostgreSQL cannot store."""
    return text.replace("\x00", "\ufffd")


def member(request: pb.RegisterWorkerRequest, lease_seconds: float) -> Member:
    """Return the validated member of a registration."""
    can, has = request.capabilities, request.resource_limits
    speed = SPEEDS.get(can.processing_speed or "standard")
    if speed is None:
        raise invalid(f"processing_speed {can.processing_speed[:50]!r} is not one of {', '.join(SPEEDS)}")
    slots = number(can.max_concurrent_tasks, "max_concurrent_tasks", 1, MAX_SLOTS)
    lease = request.lease_seconds
    return Member(
        id=name(request.worker_id, "worker_id"),
        instance_type="grpc",
        queues=names(request.queues, "queues") or None,
        capabilities=Capabilities(
            task_types=names(can.task_types, "task_types") or None,
            ai_providers=names(can.ai_providers, "ai_providers"),
            max_concurrent_tasks=int(slots),
            processing_speed=speed,
            specialized_features=names(can.specialized_features, "specialized_features"),
            versions={
                name(one.task_type, "a type of versions"): names(one.versions, "versions")
                for one in can.versions
            },
        ),
        resource_limits=ResourceLimits(
            cpu_cores=number(has.cpu_cores, "cpu_cores", 0, 100_000),
            memory_gb=number(has.memory_gb, "memory_gb", 0, 1_000_000),
            gpu_available=has.gpu_available,
        ),
        region=name(request.region, "region") if request.region else None,
        host=name(request.host, "host") if request.host else None,
        pid=request.pid or None,
        version=name(request.version, "version") if request.version else None,
        incarnation=uuid(request.incarnation, "incarnation") if request.incarnation else None,
        lease_seconds=number(lease, "lease_seconds", 0.5, 3600) if lease else lease_seconds,
        metadata=json_object(request.metadata_json, "metadata_json", MAX_METADATA),
        schemas=_schemas(request.schemas),
    )


def _schemas(given: Sequence[pb.TaskSchema]) -> list[dict[str, Any]]:
    names([one.task_type for one in given], "schemas")
    return [
        {"name": one.task_type, "schema": _schema(one), "version": one.version[:MAX_NAME] or None}
        for one in {one.task_type: one for one in given}.values()
    ]


def _schema(one: pb.TaskSchema) -> dict[str, Any]:
    what = f"the schema of {one.task_type}"
    schema = json_object(one.schema_json, what, MAX_SCHEMA)
    if not compiled(schema):
        raise invalid(f"{what} is not a JSON Schema")
    return schema


def json_object(text: str, what: str, most: int | None = None) -> dict[str, Any]:
    """Parse a JSON object. An empty text is an empty object."""
    if not text:
        return {}
    if most is not None and len(text) > most:
        raise invalid(f"{what} has {len(text)} characters; the maximum is {most}")
    value = json_value(text, what)
    if not isinstance(value, dict):
        raise invalid(f"{what} must be a JSON object")
    return value


def json_value(text: str, what: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise invalid(f"{what} is not JSON: {error}") from None
    if NUL.search(text):
        raise invalid(f"{what} contains a NUL character, which PostgreSQL cannot store")
    return value


def usage(message: pb.ResourceUsage) -> dict[str, Any]:
    return {
        "cpu_percent": number(message.cpu_percent, "cpu_percent", 0, 1e6),
        "memory_mb": number(message.memory_mb, "memory_mb", 0, 1e9),
        "task_count": message.task_count,
        "goroutine_count": message.goroutine_count,
    }


def held(message: pb.Held) -> tuple[UUID, int]:
    return uuid(message.task_id, "task_id"), message.lease


def log_line(message: pb.LogLine) -> LogLine:
    """Return a validated log line."""
    id, lease = held(message.held)
    return LogLine(
        id,
        lease,
        min(message.attempt, 2**31 - 1),
        plain(message.step)[:700] or None,
        number(message.at_us / 1_000_000, "at_us", 0, 1e11),
        min(message.level, 1000),
        plain(message.logger)[:200],
        _line(message.message),
        min(message.dropped, 2**31 - 1),
    )


def _line(text: str) -> str:
    # An encrypted line is longer and cannot be truncated.
    return plain(text)[: MAX_SEALED_LINE if is_sealed(text) else MAX_LINE]


def ended(
    worker_id: str, completions: Iterable[pb.Completion], known: Mapping[int, str]
) -> list[EndedAttempt]:
    """Return validated reports, one per attempt. `known` are the tasks of the worker by their leases."""
    found: dict[tuple[str, int], EndedAttempt] = {}
    for one in completions:
        id, lease = one.held.task_id, one.held.lease
        if known.get(lease) != id:
            id = str(uuid(id, "task_id"))
        seconds = number(one.seconds, "seconds", 0, 1e9)
        kind, text, delay, final = _outcome(one)
        found[id, lease] = EndedAttempt(worker_id, id, lease, kind, text, seconds, delay, final)
    return list(found.values())


def _outcome(one: pb.Completion) -> tuple[str, str | None, float, bool]:
    """Return outcome, text, delay and final."""
    kind = one.WhichOneof("outcome")
    if kind == "completed":
        text = one.completed.result_json
        if text:
            json_value(text, "result_json")
        return kind, text or None, 0.0, False
    if kind == "failed":
        if one.failed.kind not in ("", *KINDS):
            raise invalid(f"kind {one.failed.kind[:50]!r} is not one of {', '.join(KINDS)}")
        delay = number(one.failed.retry_after, "failed.retry_after", 0, 365 * 86_400)
        return one.failed.kind or "failed", plain(one.failed.error), delay, one.failed.final
    if kind == "postponed":
        delay = number(one.postponed.seconds, "postponed.seconds", 0, 365 * 86_400)
        return kind, plain(one.postponed.reason) or "postponed by its worker", delay, False
    if kind == "cancelled":
        return kind, None, 0.0, False
    if kind == "suspended":
        _waits(one.suspended.waits_json)
        return kind, one.suspended.waits_json, 0.0, False
    raise invalid(f"the completion of task {one.held.task_id[:50]} has no outcome")


def _waits(text: str) -> None:
    """Check the structure of waits. `shiftboss.suspend` validates the rest."""
    waits = json_value(text, "waits_json")
    if not isinstance(waits, list) or not waits or len(waits) > MAX_NAMES:
        raise invalid(f"waits_json must be an array of 1 to {MAX_NAMES} waits")
    for wait in waits:
        if not isinstance(wait, dict) or wait.get("kind") not in WAITS:
            raise invalid(f"a wait must be an object whose kind is one of {', '.join(WAITS)}")
        if not isinstance(wait.get("name"), str) or not isinstance(wait.get("ordinal"), int):
            raise invalid("a wait must have a name and an ordinal")
        if wait["kind"] == "child" and not isinstance(wait.get("task"), dict):
            raise invalid("a wait for a child must have a task")


def begun(message: pb.Begun) -> tuple[UUID, int, str | None]:
    return *held(message.held), name(message.version, "version") if message.version else None


def step(message: pb.StoredStep) -> Step:
    id, lease = held(message.held)
    result, also = message.result_json, message.also_json
    if result:
        json_value(result, "result_json")
    json_object(also, "also_json")
    seconds = number(message.seconds, "seconds", 0, 1e9)
    if not 1 <= message.ordinal <= MOST_STEPS:
        raise invalid(f"ordinal is {message.ordinal}; it must be between 1 and {MOST_STEPS}")
    return Step(
        id,
        lease,
        step_name(message.name),
        message.ordinal,
        seconds,
        result.encode() or None,
        also.encode() or None,
    )


def step_name(text: str) -> str:
    try:
        return check_name(text)
    except UsageError as error:
        raise invalid(error.message) from None


def part(message: pb.StreamPart) -> Part:
    json_value(message.part_json, "part_json")
    if len(message.part_json) > MOST_PART * (1.4 if is_sealed(message.part_json) else 1):
        raise invalid(f"a part can have at most {MOST_PART} bytes")
    return Part(*held(message.held), plain(message.step) or None, message.part_json.encode(), message.place)


def new_task(request: pb.EnqueueTaskRequest) -> NewTask:
    """Return the validated task of a request. Empty fields get the defaults of the database."""
    run_at = int(number(request.run_at_us, "run_at_us", 0, 4e15))
    return NewTask(
        task_type=name(request.task_type, "task_type"),
        params=json_object(request.params_json, "params_json"),
        queue=name(request.queue, "queue") if request.queue else None,
        priority=request.priority if request.HasField("priority") else None,
        dedup_key=name(request.dedup_key, "dedup_key") if request.dedup_key else None,
        run_at=moment(run_at) if run_at else None,
        max_attempts=request.max_attempts or None,
        tenant=name(request.tenant, "tenant") if request.tenant else None,
    )


def _figure(value: Any) -> float:
    # Other clients may have written any JSON to the workers table.
    return max(value, 0.0) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def health(row: Mapping[str, Any]) -> pb.WorkerHealth:
    used = row["resource_usage"] or {}
    return pb.WorkerHealth(
        worker_id=row["worker_id"],
        status=row["status"],
        last_heartbeat_us=micros(row["last_heartbeat"]),
        active_tasks=row["active_tasks"],
        processed_today=row["processed_today"],
        error_rate=row["error_rate"],
        avg_processing_time=row["avg_processing_time"],
        resource_usage=pb.ResourceUsage(
            cpu_percent=_figure(used.get("cpu_percent")),
            memory_mb=_figure(used.get("memory_mb")),
            task_count=min(int(_figure(used.get("task_count"))) or row["active_tasks"], 2**32 - 1),
            goroutine_count=max(row["goroutine_count"], 0),
        ),
    )
