from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Capabilities(_message.Message):
    __slots__ = ("task_types", "ai_providers", "max_concurrent_tasks", "processing_speed", "specialized_features", "versions")
    TASK_TYPES_FIELD_NUMBER: _ClassVar[int]
    AI_PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENT_TASKS_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_SPEED_FIELD_NUMBER: _ClassVar[int]
    SPECIALIZED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    task_types: _containers.RepeatedScalarFieldContainer[str]
    ai_providers: _containers.RepeatedScalarFieldContainer[str]
    max_concurrent_tasks: int
    processing_speed: str
    specialized_features: _containers.RepeatedScalarFieldContainer[str]
    versions: _containers.RepeatedCompositeFieldContainer[TypeVersions]
    def __init__(self, task_types: _Optional[_Iterable[str]] = ..., ai_providers: _Optional[_Iterable[str]] = ..., max_concurrent_tasks: _Optional[int] = ..., processing_speed: _Optional[str] = ..., specialized_features: _Optional[_Iterable[str]] = ..., versions: _Optional[_Iterable[_Union[TypeVersions, _Mapping]]] = ...) -> None: ...

class TypeVersions(_message.Message):
    __slots__ = ("task_type", "versions")
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    task_type: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task_type: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ...) -> None: ...

class ResourceLimits(_message.Message):
    __slots__ = ("cpu_cores", "memory_gb", "gpu_available")
    CPU_CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_GB_FIELD_NUMBER: _ClassVar[int]
    GPU_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    cpu_cores: float
    memory_gb: float
    gpu_available: bool
    def __init__(self, cpu_cores: _Optional[float] = ..., memory_gb: _Optional[float] = ..., gpu_available: _Optional[bool] = ...) -> None: ...

class ResourceUsage(_message.Message):
    __slots__ = ("cpu_percent", "memory_mb", "task_count", "goroutine_count")
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    TASK_COUNT_FIELD_NUMBER: _ClassVar[int]
    GOROUTINE_COUNT_FIELD_NUMBER: _ClassVar[int]
    cpu_percent: float
    memory_mb: float
    task_count: int
    goroutine_count: int
    def __init__(self, cpu_percent: _Optional[float] = ..., memory_mb: _Optional[float] = ..., task_count: _Optional[int] = ..., goroutine_count: _Optional[int] = ...) -> None: ...

class RegisterWorkerRequest(_message.Message):
    __slots__ = ("worker_id", "capabilities", "resource_limits", "queues", "region", "host", "pid", "version", "protocol_version", "lease_seconds", "session", "incarnation", "metadata_json", "schemas")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_LIMITS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    capabilities: Capabilities
    resource_limits: ResourceLimits
    queues: _containers.RepeatedScalarFieldContainer[str]
    region: str
    host: str
    pid: int
    version: str
    protocol_version: int
    lease_seconds: float
    session: str
    incarnation: str
    metadata_json: str
    schemas: _containers.RepeatedCompositeFieldContainer[TaskSchema]
    def __init__(self, worker_id: _Optional[str] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ..., resource_limits: _Optional[_Union[ResourceLimits, _Mapping]] = ..., queues: _Optional[_Iterable[str]] = ..., region: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., version: _Optional[str] = ..., protocol_version: _Optional[int] = ..., lease_seconds: _Optional[float] = ..., session: _Optional[str] = ..., incarnation: _Optional[str] = ..., metadata_json: _Optional[str] = ..., schemas: _Optional[_Iterable[_Union[TaskSchema, _Mapping]]] = ...) -> None: ...

class TaskSchema(_message.Message):
    __slots__ = ("task_type", "schema_json", "version")
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    task_type: str
    schema_json: str
    version: str
    def __init__(self, task_type: _Optional[str] = ..., schema_json: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class RegisterWorkerResponse(_message.Message):
    __slots__ = ("session", "heartbeat_seconds", "lease_seconds", "resumed", "coordinator", "installation")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    session: str
    heartbeat_seconds: float
    lease_seconds: float
    resumed: bool
    coordinator: str
    installation: str
    def __init__(self, session: _Optional[str] = ..., heartbeat_seconds: _Optional[float] = ..., lease_seconds: _Optional[float] = ..., resumed: _Optional[bool] = ..., coordinator: _Optional[str] = ..., installation: _Optional[str] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("worker_id", "session", "leases", "resource_usage")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_USAGE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    leases: _containers.RepeatedScalarFieldContainer[int]
    resource_usage: ResourceUsage
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., leases: _Optional[_Iterable[int]] = ..., resource_usage: _Optional[_Union[ResourceUsage, _Mapping]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("paused", "draining", "cancel", "lost")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    draining: bool
    cancel: _containers.RepeatedScalarFieldContainer[int]
    lost: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, paused: _Optional[bool] = ..., draining: _Optional[bool] = ..., cancel: _Optional[_Iterable[int]] = ..., lost: _Optional[_Iterable[int]] = ...) -> None: ...

class AssignTaskRequest(_message.Message):
    __slots__ = ("worker_id", "session", "free_slots", "accepted", "refused", "ahead")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    free_slots: int
    accepted: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    ahead: int
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., free_slots: _Optional[int] = ..., accepted: _Optional[_Iterable[int]] = ..., refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., ahead: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("lease", "reason")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease: int
    reason: str
    def __init__(self, lease: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class AssignTaskResponse(_message.Message):
    __slots__ = ("assignments", "withdrawn", "beat_now")
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    BEAT_NOW_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    withdrawn: _containers.RepeatedScalarFieldContainer[int]
    beat_now: bool
    def __init__(self, assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., withdrawn: _Optional[_Iterable[int]] = ..., beat_now: _Optional[bool] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("task_id", "lease", "task_type", "params_json", "attempt", "max_attempts", "queue", "priority", "tenant", "timeout_seconds", "deadline_us", "created_us", "ready_us", "started_us", "run_id", "metadata_json", "crashes", "lane")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    CREATED_US_FIELD_NUMBER: _ClassVar[int]
    READY_US_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    CRASHES_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    lease: int
    task_type: str
    params_json: str
    attempt: int
    max_attempts: int
    queue: str
    priority: int
    tenant: str
    timeout_seconds: float
    deadline_us: int
    created_us: int
    ready_us: int
    started_us: int
    run_id: str
    metadata_json: str
    crashes: int
    lane: int
    def __init__(self, task_id: _Optional[str] = ..., lease: _Optional[int] = ..., task_type: _Optional[str] = ..., params_json: _Optional[str] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., tenant: _Optional[str] = ..., timeout_seconds: _Optional[float] = ..., deadline_us: _Optional[int] = ..., created_us: _Optional[int] = ..., ready_us: _Optional[int] = ..., started_us: _Optional[int] = ..., run_id: _Optional[str] = ..., metadata_json: _Optional[str] = ..., crashes: _Optional[int] = ..., lane: _Optional[int] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("task_id", "lease")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    lease: int
    def __init__(self, task_id: _Optional[str] = ..., lease: _Optional[int] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("worker_id", "session", "progress")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("held", "percent", "message")
    HELD_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    held: Held
    percent: int
    message: str
    def __init__(self, held: _Optional[_Union[Held, _Mapping]] = ..., percent: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ("stale",)
    STALE_FIELD_NUMBER: _ClassVar[int]
    stale: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, stale: _Optional[_Iterable[str]] = ...) -> None: ...

class ReportLogsRequest(_message.Message):
    __slots__ = ("worker_id", "session", "lines", "ended")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    lines: _containers.RepeatedCompositeFieldContainer[LogLine]
    ended: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., lines: _Optional[_Iterable[_Union[LogLine, _Mapping]]] = ..., ended: _Optional[_Iterable[str]] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("held", "attempt", "step", "at_us", "level", "logger", "message", "dropped")
    HELD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_US_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    held: Held
    attempt: int
    step: str
    at_us: int
    level: int
    logger: str
    message: str
    dropped: int
    def __init__(self, held: _Optional[_Union[Held, _Mapping]] = ..., attempt: _Optional[int] = ..., step: _Optional[str] = ..., at_us: _Optional[int] = ..., level: _Optional[int] = ..., logger: _Optional[str] = ..., message: _Optional[str] = ..., dropped: _Optional[int] = ...) -> None: ...

class ReportLogsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportCompletionRequest(_message.Message):
    __slots__ = ("worker_id", "session", "completions", "installation")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    completions: _containers.RepeatedCompositeFieldContainer[Completion]
    installation: str
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., completions: _Optional[_Iterable[_Union[Completion, _Mapping]]] = ..., installation: _Optional[str] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("held", "seconds", "completed", "failed", "postponed", "cancelled", "suspended")
    HELD_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    POSTPONED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    held: Held
    seconds: float
    completed: Completed
    failed: Failed
    postponed: Postponed
    cancelled: Cancelled
    suspended: Suspended
    def __init__(self, held: _Optional[_Union[Held, _Mapping]] = ..., seconds: _Optional[float] = ..., completed: _Optional[_Union[Completed, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., postponed: _Optional[_Union[Postponed, _Mapping]] = ..., cancelled: _Optional[_Union[Cancelled, _Mapping]] = ..., suspended: _Optional[_Union[Suspended, _Mapping]] = ...) -> None: ...

class Completed(_message.Message):
    __slots__ = ("result_json",)
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    result_json: str
    def __init__(self, result_json: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("error", "kind", "final", "retry_after")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    error: str
    kind: str
    final: bool
    retry_after: float
    def __init__(self, error: _Optional[str] = ..., kind: _Optional[str] = ..., final: _Optional[bool] = ..., retry_after: _Optional[float] = ...) -> None: ...

class Postponed(_message.Message):
    __slots__ = ("seconds", "reason")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    reason: str
    def __init__(self, seconds: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class Cancelled(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Suspended(_message.Message):
    __slots__ = ("waits_json",)
    WAITS_JSON_FIELD_NUMBER: _ClassVar[int]
    waits_json: str
    def __init__(self, waits_json: _Optional[str] = ...) -> None: ...

class LoadStepsRequest(_message.Message):
    __slots__ = ("worker_id", "session", "tasks")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    tasks: _containers.RepeatedCompositeFieldContainer[Begun]
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[Begun, _Mapping]]] = ...) -> None: ...

class Begun(_message.Message):
    __slots__ = ("held", "version")
    HELD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    held: Held
    version: str
    def __init__(self, held: _Optional[_Union[Held, _Mapping]] = ..., version: _Optional[str] = ...) -> None: ...

class LoadStepsResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskSteps]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskSteps, _Mapping]]] = ...) -> None: ...

class TaskSteps(_message.Message):
    __slots__ = ("task_id", "steps_json", "ran_seconds", "most_bytes", "version")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STEPS_JSON_FIELD_NUMBER: _ClassVar[int]
    RAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    steps_json: str
    ran_seconds: float
    most_bytes: int
    version: str
    def __init__(self, task_id: _Optional[str] = ..., steps_json: _Optional[str] = ..., ran_seconds: _Optional[float] = ..., most_bytes: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class StoreStepsRequest(_message.Message):
    __slots__ = ("worker_id", "session", "steps")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    steps: _containers.RepeatedCompositeFieldContainer[StoredStep]
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[StoredStep, _Mapping]]] = ...) -> None: ...

class StoredStep(_message.Message):
    __slots__ = ("held", "name", "ordinal", "seconds", "result_json", "also_json")
    HELD_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    ALSO_JSON_FIELD_NUMBER: _ClassVar[int]
    held: Held
    name: str
    ordinal: int
    seconds: float
    result_json: str
    also_json: str
    def __init__(self, held: _Optional[_Union[Held, _Mapping]] = ..., name: _Optional[str] = ..., ordinal: _Optional[int] = ..., seconds: _Optional[float] = ..., result_json: _Optional[str] = ..., also_json: _Optional[str] = ...) -> None: ...

class StoreStepsResponse(_message.Message):
    __slots__ = ("stale",)
    STALE_FIELD_NUMBER: _ClassVar[int]
    stale: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, stale: _Optional[_Iterable[str]] = ...) -> None: ...

class AppendPartsRequest(_message.Message):
    __slots__ = ("worker_id", "session", "parts")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    parts: _containers.RepeatedCompositeFieldContainer[StreamPart]
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[StreamPart, _Mapping]]] = ...) -> None: ...

class StreamPart(_message.Message):
    __slots__ = ("held", "step", "part_json", "place")
    HELD_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PART_JSON_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    held: Held
    step: str
    part_json: str
    place: int
    def __init__(self, held: _Optional[_Union[Held, _Mapping]] = ..., step: _Optional[str] = ..., part_json: _Optional[str] = ..., place: _Optional[int] = ...) -> None: ...

class AppendPartsResponse(_message.Message):
    __slots__ = ("stale",)
    STALE_FIELD_NUMBER: _ClassVar[int]
    stale: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, stale: _Optional[_Iterable[str]] = ...) -> None: ...

class SendEventRequest(_message.Message):
    __slots__ = ("key", "payload_json", "task_id", "id", "keep_seconds")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    key: str
    payload_json: str
    task_id: str
    id: str
    keep_seconds: float
    def __init__(self, key: _Optional[str] = ..., payload_json: _Optional[str] = ..., task_id: _Optional[str] = ..., id: _Optional[str] = ..., keep_seconds: _Optional[float] = ...) -> None: ...

class SendEventResponse(_message.Message):
    __slots__ = ("woken",)
    WOKEN_FIELD_NUMBER: _ClassVar[int]
    woken: int
    def __init__(self, woken: _Optional[int] = ...) -> None: ...

class AskRequest(_message.Message):
    __slots__ = ("worker_id", "session", "what", "arguments_json")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    what: str
    arguments_json: str
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ..., what: _Optional[str] = ..., arguments_json: _Optional[str] = ...) -> None: ...

class AskResponse(_message.Message):
    __slots__ = ("answer_json",)
    ANSWER_JSON_FIELD_NUMBER: _ClassVar[int]
    answer_json: str
    def __init__(self, answer_json: _Optional[str] = ...) -> None: ...

class ReportCompletionResponse(_message.Message):
    __slots__ = ("stale",)
    STALE_FIELD_NUMBER: _ClassVar[int]
    stale: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, stale: _Optional[_Iterable[str]] = ...) -> None: ...

class UnregisterWorkerRequest(_message.Message):
    __slots__ = ("worker_id", "session")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session: str
    def __init__(self, worker_id: _Optional[str] = ..., session: _Optional[str] = ...) -> None: ...

class UnregisterWorkerResponse(_message.Message):
    __slots__ = ("returned_tasks",)
    RETURNED_TASKS_FIELD_NUMBER: _ClassVar[int]
    returned_tasks: int
    def __init__(self, returned_tasks: _Optional[int] = ...) -> None: ...

class GetWorkerHealthRequest(_message.Message):
    __slots__ = ("worker_id",)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ...) -> None: ...

class GetWorkerHealthResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerHealth]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerHealth, _Mapping]]] = ...) -> None: ...

class WorkerHealth(_message.Message):
    __slots__ = ("worker_id", "status", "last_heartbeat_us", "active_tasks", "processed_today", "error_rate", "avg_processing_time", "resource_usage")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_US_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_TASKS_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_TODAY_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    AVG_PROCESSING_TIME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_USAGE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    status: str
    last_heartbeat_us: int
    active_tasks: int
    processed_today: int
    error_rate: float
    avg_processing_time: float
    resource_usage: ResourceUsage
    def __init__(self, worker_id: _Optional[str] = ..., status: _Optional[str] = ..., last_heartbeat_us: _Optional[int] = ..., active_tasks: _Optional[int] = ..., processed_today: _Optional[int] = ..., error_rate: _Optional[float] = ..., avg_processing_time: _Optional[float] = ..., resource_usage: _Optional[_Union[ResourceUsage, _Mapping]] = ...) -> None: ...

class EnqueueTaskRequest(_message.Message):
    __slots__ = ("task_type", "params_json", "queue", "priority", "dedup_key", "run_at_us", "max_attempts", "tenant")
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_US_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    task_type: str
    params_json: str
    queue: str
    priority: int
    dedup_key: str
    run_at_us: int
    max_attempts: int
    tenant: str
    def __init__(self, task_type: _Optional[str] = ..., params_json: _Optional[str] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ..., run_at_us: _Optional[int] = ..., max_attempts: _Optional[int] = ..., tenant: _Optional[str] = ...) -> None: ...

class EnqueueTaskResponse(_message.Message):
    __slots__ = ("task_id", "created", "warning")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    created: bool
    warning: str
    def __init__(self, task_id: _Optional[str] = ..., created: _Optional[bool] = ..., warning: _Optional[str] = ...) -> None: ...
