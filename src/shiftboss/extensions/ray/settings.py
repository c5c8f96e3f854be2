"""The `ray` section of the settings."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shiftboss.model.section import Section


class RaySettings(Section):
    """How a worker (`shiftboss worker --engine ray`) and a Ray cluster reach each other."""

    address: str = "auto"
    """The cluster: `auto` for the one of this machine, or HOST:PORT of its head."""
    host: str | None = None
    """The address of this worker as Ray's nodes see it; None: the one that Ray knows this node by."""
    port: int = Field(default=0, ge=0, le=65535)
    """Where Ray's nodes report to this worker; 0: any free port."""
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    """Ray's runtime environment, like `{"working_dir": "."}`. Without it, nodes need the code themselves."""
    start_seconds: float = Field(default=60.0, gt=0)
    """A task that Ray has not started within this goes back to the queue, without spending an attempt."""
    grow: int = Field(default=100, ge=0)
    """Tell Ray's autoscaler of so many tasks that wait or run, for it to add nodes; 0: of none."""
