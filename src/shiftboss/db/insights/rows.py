"""The rows of the read model, as the CLI, API and dashboard receive them.

A test compares the keys of each class with the columns that its query returns. The HTTP API returns some of
them, under names of its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12


class CountsRow(TypedDict):
    """Tasks and workers by state: the view `orchestrator_status`."""

    queued_tasks: int
    running_tasks: int
    completed_tasks: int
    failed_tasks: int
    cancelled_tasks: int
    inactive_workers: int
    active_workers: int
    terminated_workers: int
    external_workers: int
    stale_workers: int
    stuck_tasks: int
    snapshot_time: datetime
    suspended_tasks: int


class Glance(TypedDict):
    """What the overview shows at a glance."""

    running: int
    workers: int
    failed: int


class AlertRow(TypedDict):
    """Something that needs attention. `command` can be run as printed."""

    severity: Literal["critical", "warning"]
    kind: Annotated[str, Field(examples=["stale_worker"])]
    subject: Annotated[str | None, Field(description="the worker, slot, task or provider concerned")]
    message: str
    advice: str | None
    command: Annotated[str | None, Field(description="a command to run")]
    rule: str
    since: Annotated[datetime | None, Field(description="when the leader first found it; null: not yet")]


class Work(TypedDict):
    """What a worker has done today."""

    processed_today: int
    error_rate: float
    avg_processing_seconds: float | None


class WorkerRow(Work):
    """A worker with its health and its work of today: the view `shiftboss.members`."""

    worker_id: str
    instance_type: str
    status: Literal["inactive", "active", "terminated"]
    created_at: datetime
    last_heartbeat: datetime | None
    heartbeat_age_seconds: float | None
    vram_total_mb: int | None
    vram_used_mb: int | None
    vram_usage_percent: float | None
    current_task_id: UUID | None
    current_task_type: str | None
    current_task_status: str | None
    task_runtime_seconds: float | None
    running_tasks: int
    health_status: str
    queues: list[str] | None
    capabilities: dict[str, Any]
    resource_limits: dict[str, Any]
    resource_usage: dict[str, Any]
    region: str | None
    host: str | None
    pid: int | None
    version: str | None
    paused: bool
    draining: bool
    metadata: dict[str, Any]
    lease_expires_at: datetime | None


class HeldTask(TypedDict):
    """A task that a worker is running."""

    id: UUID
    task_type: str
    queue: str
    started_at: datetime | None
    progress: int | None
    progress_message: str | None


class WorkerDetailRow(WorkerRow):
    """A worker with the tasks that it is running."""

    tasks: list[HeldTask]


class LimitsRow(TypedDict):
    """The pause and the limits of a queue or task type."""

    name: str
    paused: bool
    pause_reason: str | None
    paused_at: datetime | None
    max_running: int | None
    rate: int | None
    rate_seconds: float | None
    rate_per: str | None


class QueueRow(LimitsRow):
    """A queue: the view `shiftboss.queues`."""

    queued: int
    ready: Annotated[int, Field(description="tasks that can be claimed now")]
    running: int
    oldest_seconds: float | None
    workers: int


class QueueDepth(QueueRow):
    """A queue whose waiting tasks were counted up to a limit.

    If there are `more`, `counted` is the leader's last count of the queue, if there is one.
    """

    more: bool
    counted: int | None


class TaskTypeRow(LimitsRow):
    """A task type: the view `shiftboss.task_types`."""

    queues: list[str]
    max_per_key: int | None
    limits_set_by: str | None
    limits_in_code: dict[str, Any] | None


class ErrorGroupRow(TypedDict):
    """Failures of one exception type at one place in the code."""

    id: str
    error_type: Annotated[str, Field(description="the exception, or the outcome: timeout, lost, crashed")]
    place: Annotated[str | None, Field(description="file and function that raised the exception")]
    message: Annotated[str | None, Field(description="message of the latest failure")]
    first_seen: datetime
    last_seen: datetime
    count: Annotated[int, Field(description="failed attempts")]
    task_types: Annotated[list[str], Field(description="the latest 20; the same for versions and workers")]
    versions: list[str]
    workers: list[str]
    task_id: Annotated[UUID | None, Field(description="the latest task")]


class OpenGroup(TypedDict):
    """An error group with the number of failed tasks that can be retried."""

    id: str
    error_type: str
    place: str | None
    message: str | None
    last_seen: datetime
    task_types: list[str]
    task_id: UUID | None
    tasks: int
    more: bool


class ListedTask(TypedDict):
    """A task in a list. `at` is the timestamp that the list is ordered by."""

    id: UUID
    status: str
    task_type: str
    queue: str
    priority: int
    params_preview: str
    attempts: int
    max_attempts: int
    worker_id: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    run_at: datetime | None
    error_message: str | None
    wait_reason: str | None
    progress: int | None
    progress_message: str | None
    run_id: UUID | None
    tenant: str | None
    cancelling: bool
    at: datetime


class Relative(TypedDict):
    """A task near another one in the graph of dependencies."""

    id: UUID
    task_type: str
    status: str
    depends_on: list[UUID] | None
    children: list[UUID]


class StepRow(TypedDict):
    """A step or wait of a task. `result` is None if it is too large to show."""

    kind: str
    name: str
    ordinal: int
    state: str
    attempt: int
    started_at: datetime
    ended_at: datetime | None
    until: datetime | None
    event_key: str | None
    child_id: UUID | None
    question: str | None
    schema: dict[str, Any] | None
    answered_by: str | None
    has_result: bool
    result: Any


class PartRow(TypedDict):
    """A part of the stream of a task."""

    seq: int
    attempt: int
    restart: bool
    part: Any
    at: datetime


class LogRow(TypedDict):
    """A log line of a task."""

    id: int
    attempt: int
    step: str | None
    at: datetime
    level: str
    message: str
    dropped: int


class PointRow(TypedDict):
    """Throughput, failures and durations in one interval."""

    at: datetime
    completed: int
    failed: int
    per_second: float
    error_rate: float
    avg_seconds: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class FleetFigures(TypedDict):
    """The figures of the whole fleet for /metrics."""

    running: int
    stuck: int
    active_workers: int
    stale_workers: int
    led: bool
    lost_leases: int
    stale_reports: int
    leader_changes: int
    suspended: int


class WorkFigures(TypedDict):
    """Attempts of one worker and task type, with a histogram of their durations."""

    worker_id: str
    task_type: str
    completed: int
    failed: int
    seconds: float
    buckets: list[int]


class QueueFigures(TypedDict):
    """The depth of a queue, and the age of its oldest ready task."""

    name: str
    queued: int | None
    oldest_seconds: float


class ServerState(TypedDict):
    """The version, settings and size of the database."""

    version: str
    fsync: bool
    autovacuum: bool
    synchronous_commit: str
    max_connections: int
    connections: int
    role: str
    sees_sessions: bool
    """Whether the role sees the transactions of other roles."""
    standby: bool
    vector: str | None
    vector_available: bool
    bytes: int
