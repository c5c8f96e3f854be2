"""Keeps the slots of this host alive: spawn, watch, restart, pause. Calls db, lifecycle and worker.slot."""

from shiftboss.supervisor.supervisor import Supervisor

__all__ = ["Supervisor"]
