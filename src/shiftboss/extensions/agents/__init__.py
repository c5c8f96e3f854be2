"""Runs pydantic-ai agents as durable tasks: `pip install 'shiftboss[agents]'`."""

from shiftboss.extensions.agents.durability import ShiftbossDurability
from shiftboss.model.step import StepTerms

__all__ = ["ShiftbossDurability", "StepTerms"]
