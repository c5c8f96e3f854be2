"""Convert the messages of a worker: registration, assignments, outcomes and log lines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson

from shiftboss.extensions.grpc import codec
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.model.codec import current
from shiftboss.model.log import LogLine
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, Postpone, Report, Suspended, Unreadable
from shiftboss.model.worker import Member
from shiftboss.worker.spool import seal


def registration(member: Member, session: str) -> pb.RegisterWorkerRequest:
    versions = member.capabilities.versions.items()
    capabilities = member.capabilities.as_json() | {
        "versions": [pb.TypeVersions(task_type=one, versions=known) for one, known in versions]
    }
    return pb.RegisterWorkerRequest(
        worker_id=member.id,
        capabilities=pb.Capabilities(**capabilities),
        resource_limits=pb.ResourceLimits(**member.resource_limits.as_json()),
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
        schemas=[_schema(one) for one in member.schemas],
    )


def _schema(one: dict[str, Any]) -> pb.TaskSchema:
    text = orjson.dumps(one["schema"]).decode()
    return pb.TaskSchema(task_type=one["name"], schema_json=text, version=one["version"] or "")


def claimed(one: pb.Assignment) -> Claimed:
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
        started_at=codec.moment(one.started_us),
        lane=one.lane,
        run_id=UUID(one.run_id) if one.run_id else None,
        metadata=_params(one.metadata_json) if one.metadata_json else None,
        crashes=one.crashes,
    )


def _params(text: str) -> dict[str, Any]:
    try:
        params: dict[str, Any] = orjson.loads(text)
    except ValueError as error:  # for example a number with 400 digits: fail this task, not the worker
        return Unreadable(str(error))
    opened: dict[str, Any] = current().open(params)
    return opened


#: Seconds; zero would select the backoff of the task.
AT_ONCE = 0.001
LONGEST = 365 * 86_400.0


def completion(report: Report) -> pb.Completion:
    message = pb.Completion(
        held=pb.Held(task_id=str(report.task.id), lease=report.task.lease),
        seconds=max(report.seconds, 0.0),
    )
    match seal(report.outcome):
        case Complete(result):
            message.completed.result_json = "" if result is None else result.decode()
            message.completed.SetInParent()
        case Fail(error, kind, retry, after):
            message.failed.error = error
            message.failed.kind = kind if kind in codec.KINDS else "failed"
            message.failed.final = not retry
            message.failed.retry_after = 0.0 if after is None else min(max(after, AT_ONCE), LONGEST)
        case Postpone(seconds, reason):
            message.postponed.seconds = max(seconds, 0.0)
            message.postponed.reason = reason
            message.postponed.SetInParent()
        case Cancelled():
            message.cancelled.SetInParent()
        case Suspended(waits):
            message.suspended.waits_json = orjson.dumps(waits).decode()
    return message


def log_line(line: LogLine) -> pb.LogLine:
    return pb.LogLine(
        held=pb.Held(task_id=str(line.task_id), lease=line.lease),
        attempt=line.attempt,
        step=line.step or "",
        at_us=int(line.at * 1_000_000),
        level=line.level,
        logger=line.logger,
        message=current().text(line.message) or "",
        dropped=line.dropped,
    )
