"""Workers: their capabilities and limits, and the orders that a heartbeat returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple
from uuid import UUID

Speed = Literal["fast", "standard", "thorough"]


@dataclass(slots=True, kw_only=True)
class Capabilities:
    """What a worker can run. If `task_types` is None, it accepts any type."""

    task_types: list[str] | None = None
    versions: dict[str, list[str]] = field(default_factory=dict)
    """The versions of each versioned task type that the worker can continue."""
    ai_providers: list[str] = field(default_factory=list)
    max_concurrent_tasks: int = 1
    processing_speed: Speed = "standard"
    specialized_features: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        value = asdict(self)
        if self.task_types is None:
            del value["task_types"]
        if not self.versions:
            del value["versions"]
        return value


@dataclass(slots=True, kw_only=True)
class ResourceLimits:
    cpu_cores: float = 1
    memory_gb: float = 1
    gpu_available: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True, kw_only=True)
class Member:
    """The registration of a worker."""

    id: str
    instance_type: str = "process"
    queues: list[str] | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    resource_limits: ResourceLimits = field(default_factory=ResourceLimits)
    region: str | None = None
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    incarnation: UUID | None = None
    lease_seconds: float = 30.0
    metadata: dict[str, Any] = field(default_factory=dict)
    age_seconds: float = 0.0
    """The age of its process."""
    schemas: list[dict[str, Any]] = field(default_factory=list)
    """The arguments of its task types: `name`, `schema` (JSON Schema) and `version`."""


class Orders(NamedTuple):
    """The reply to a heartbeat. `known` is False if the worker is not registered any more."""

    known: bool
    status: str | None
    paused: bool
    draining: bool
    cancel: list[int]
    lost: list[int]
