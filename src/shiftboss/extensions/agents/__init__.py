"""Runs pydantic-ai agents as durable tasks: `pip install 'shiftboss[agents]'`."""

from shiftboss.extension import missing
from shiftboss.model.step import StepTerms

try:
    from shiftboss.extensions.agents.durability import ShiftbossDurability
except ModuleNotFoundError as error:
    raise missing("shiftboss.extensions.agents", "agents", error) from error

__all__ = ["ShiftbossDurability", "StepTerms"]
