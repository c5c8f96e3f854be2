"""Between messages and the house's own words; whatever a message brings is checked here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from shiftboss.coordinator.proto import fleet_pb2 as pb
from shiftboss.coordinator.refusals import invalid
from shiftboss.db.fleet import Ended, Given
from shiftboss.model.worker import Capabilities, Member, ResourceLimits, Speed

PROTOCOL = 1
MAX_NAME = 200
MAX_NAMES = 1000
MAX_SLOTS = 10_000
MAX_AHEAD = 1000
MAX_METADATA = 16 * 1024
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL; after an escaped backslash, u0000 is plain text."""
SPEEDS: dict[str, Speed] = {"fast": "fast", "standard": "standard", "thorough": "thorough"}


def micros(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1_000_000)


def moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def assignment(given: Given) -> pb.Assignment:
    timeout: timedelta | None = given.timeout
    return pb.Assignment(
        task_id=str(given.id),
        lease=given.lease,
        task_type=given.task_type,
        params_json=given.params,
        attempt=given.attempt,
        max_attempts=given.max_attempts,
        queue=given.queue,
        priority=given.priority,
        tenant=given.tenant or "",
        timeout_seconds=0.0 if timeout is None else timeout.total_seconds(),
        deadline_us=micros(given.deadline),
        created_us=micros(given.created_at),
        ready_us=micros(given.ready_at),
        started_us=micros(given.started_at),
        run_id="" if given.run_id is None else str(given.run_id),
        metadata_json=given.metadata or "",
    )


def name(text: str, what: str) -> str:
    """A name that may stand in the database and in a log."""
    if not text or len(text) > MAX_NAME or not text.isprintable() or text != text.strip():
        raise invalid(f"{what} must have 1 to {MAX_NAME} printable characters, and no space around them")
    return text


def names(texts: Sequence[str], what: str) -> list[str]:
    if len(texts) > MAX_NAMES:
        raise invalid(f"{what} has {len(texts)} entries; {MAX_NAMES} are the most")
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
    """Text for people; PostgreSQL can not keep a NUL."""
    return text.replace("\x00", "\ufffd")


def member(request: pb.RegisterWorkerRequest, lease_seconds: float) -> Member:
    """A registration, checked."""
    can, has = request.capabilities, request.resource_limits
    speed = SPEEDS.get(can.processing_speed or "standard")
    if speed is None:
        raise invalid(f"processing_speed {can.processing_speed[:50]!r} is none of {', '.join(SPEEDS)}")
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
        metadata=_metadata(request.metadata_json),
    )


def _metadata(text: str) -> dict[str, Any]:
    if not text:
        return {}
    if len(text) > MAX_METADATA:
        raise invalid(f"metadata_json has {len(text)} characters; {MAX_METADATA} are the most")
    value = _json(text, "metadata_json")
    if not isinstance(value, dict):
        raise invalid("metadata_json must be a JSON object")
    return value


def _json(text: str, what: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise invalid(f"{what} is not JSON: {error}") from None
    if NUL.search(text):
        raise invalid(f"{what} holds a NUL character, which PostgreSQL can not keep")
    return value


def usage(message: pb.ResourceUsage) -> dict[str, Any]:
    return {
        "cpu_percent": number(message.cpu_percent, "cpu_percent", 0, 1e6),
        "memory_mb": number(message.memory_mb, "memory_mb", 0, 1e9),
        "task_count": message.task_count,
    }


def held(message: pb.Held) -> tuple[UUID, int]:
    return uuid(message.task_id, "task_id"), message.lease


def ended(worker_id: str, completions: Iterable[pb.Completion]) -> list[Ended]:
    """Reports, checked; an attempt that is named twice counts once."""
    found: dict[tuple[UUID, int], Ended] = {}
    for one in completions:
        id, lease = held(one.held)
        seconds = number(one.seconds, "seconds", 0, 1e9)
        kind, text, delay, final = _outcome(one)
        found[id, lease] = Ended(worker_id, id, lease, kind, text, seconds, delay, final)
    return list(found.values())


def _outcome(one: pb.Completion) -> tuple[str, str | None, float, bool]:
    """Outcome, text, delay, final."""
    kind = one.WhichOneof("outcome")
    if kind == "completed":
        text = one.completed.result_json
        if text:
            _json(text, "result_json")
        return kind, text or None, 0.0, False
    if kind == "failed":
        if one.failed.kind not in ("", "failed", "timeout"):
            raise invalid(f"kind {one.failed.kind[:50]!r} is none of failed, timeout")
        return one.failed.kind or "failed", plain(one.failed.error), 0.0, one.failed.final
    if kind == "postponed":
        delay = number(one.postponed.seconds, "postponed.seconds", 0, 365 * 86_400)
        return kind, plain(one.postponed.reason) or "postponed by its worker", delay, False
    if kind == "cancelled":
        return kind, None, 0.0, False
    raise invalid(f"the completion of task {one.held.task_id[:50]} has no outcome")


def _figure(value: Any) -> float:
    """Other writers of the workers table may have put anything there."""
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
        ),
    )
