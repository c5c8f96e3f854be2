"""Keep the slots of this host alive: spawn, watch, restart, replace."""

from shiftboss.supervisor.supervisor import Supervisor

__all__ = ["Supervisor"]
