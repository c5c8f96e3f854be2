"""The lifecycle of everything that loops: start, stop, readiness, ticks with jitter, backoff."""

from shiftboss.lifecycle.backoff import Backoff
from shiftboss.lifecycle.service import Service, first_of, sleep, ticks

__all__ = ["Backoff", "Service", "first_of", "sleep", "ticks"]
