"""All actions that change the fleet, authorized and audited. CLI, API and dashboard call nothing else."""

from shiftboss.operations.audit import Audited, few
from shiftboss.operations.operations import Operations

__all__ = ["Audited", "Operations", "few"]
