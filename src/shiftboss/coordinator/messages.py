"""A worker's side of the messages: what it says of itself, what it is given, how attempts ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson

from shiftboss.coordinator import codec
from shiftboss.coordinator.proto import fleet_pb2 as pb
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, Postpone, Report, Unreadable
from shiftboss.model.worker import Member


def registration(member: Member, session: str) -> pb.RegisterWorkerRequest:
    can, has = member.capabilities, member.resource_limits
    return pb.RegisterWorkerRequest(
        worker_id=member.id,
        capabilities=pb.Capabilities(
            task_types=can.task_types or (),
            ai_providers=can.ai_providers,
            max_concurrent_tasks=can.max_concurrent_tasks,
            processing_speed=can.processing_speed,
            specialized_features=can.specialized_features,
        ),
        resource_limits=pb.ResourceLimits(
            cpu_cores=has.cpu_cores, memory_gb=has.memory_gb, gpu_available=has.gpu_available
        ),
        queues=member.queues or (),
        region=member.region or "",
        host=member.host or "",
        pid=member.pid or 0,
        version=member.version or "",
        protocol_version=codec.PROTOCOL,
        lease_seconds=member.lease_seconds,
        session=session,
        incarnation="" if member.incarnation is None else str(member.incarnation),
        metadata_json=orjson.dumps(member.metadata).decode() if member.metadata else "",
    )


def claimed(one: pb.Assignment) -> Claimed:
    started = codec.moment(one.started_us)
    return Claimed(
        id=UUID(one.task_id),
        lease=one.lease,
        task_type=one.task_type,
        params=_params(one.params_json),
        attempt=one.attempt,
        max_attempts=one.max_attempts,
        queue=one.queue,
        priority=one.priority,
        tenant=one.tenant or None,
        timeout=timedelta(seconds=one.timeout_seconds) if one.timeout_seconds else None,
        deadline=codec.moment(one.deadline_us) if one.deadline_us else None,
        created_at=codec.moment(one.created_us),
        ready_at=codec.moment(one.ready_us),
        started_at=started,
        lane=0,
        run_id=UUID(one.run_id) if one.run_id else None,
        metadata=_params(one.metadata_json) if one.metadata_json else None,
    )


def _params(text: str) -> dict[str, Any]:
    try:
        params: dict[str, Any] = orjson.loads(text)
    except ValueError as error:  # a number of 400 digits, say: that task fails, not the worker
        return Unreadable(str(error))
    return params


def completion(report: Report) -> pb.Completion:
    message = pb.Completion(
        held=pb.Held(task_id=str(report.task.id), lease=report.task.lease),
        seconds=max(report.seconds, 0.0),
    )
    match report.outcome:
        case Complete(result):
            message.completed.result_json = "" if result is None else result.decode()
            message.completed.SetInParent()
        case Fail(error, kind, retry):
            message.failed.error = error
            message.failed.kind = "timeout" if kind == "timeout" else "failed"
            message.failed.final = not retry
        case Postpone(seconds, reason):
            message.postponed.seconds = max(seconds, 0.0)
            message.postponed.reason = reason
            message.postponed.SetInParent()
        case Cancelled():
            message.cancelled.SetInParent()
    return message
