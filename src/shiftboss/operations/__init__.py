"""Every action that changes the fleet, checked and audited. CLI, API and page call nothing else."""

from shiftboss.operations.audit import Audited, few
from shiftboss.operations.operations import Operations

__all__ = ["Audited", "Operations", "few"]
