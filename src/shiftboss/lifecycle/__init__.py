"""The lifecycle of everything that loops: start, stop, readiness, ticks with jitter, backoff."""

from shiftboss.lifecycle.backoff import Backoff
from shiftboss.lifecycle.service import Service, sleep, ticks

__all__ = ["Backoff", "Service", "sleep", "ticks"]
