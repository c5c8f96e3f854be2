"""The `ray` section of the settings."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shiftboss.model.section import Section


class RaySettings(Section):
    """The connection between a worker (`shiftboss worker --engine ray`) and a Ray cluster."""

    address: str = "auto"
    """The cluster: `auto` for the cluster of this machine, or HOST:PORT of its head node."""
    host: str | None = None
    """The address at which Ray's nodes reach this worker. By default, Ray's address of this node."""
    port: int = Field(default=0, ge=0, le=65535)
    """The port for connections from Ray's nodes; 0 picks a free one."""
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    """Ray's runtime environment, for example `{"working_dir": "."}`. Without it, nodes need the code."""
    start_seconds: float = Field(default=60.0, gt=0)
    """A task that Ray has not started in this time returns to the queue without spending an attempt."""
    grow: int = Field(default=100, ge=0)
    """Maximum number of running and waiting tasks reported to Ray's autoscaler; 0 turns this off."""
