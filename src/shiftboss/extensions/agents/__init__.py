"""Runs pydantic-ai agents as durable tasks: `pip install 'shiftboss[agents]'`."""

from shiftboss.extensions.agents.durability import ShiftbossDurability

__all__ = ["ShiftbossDurability"]
