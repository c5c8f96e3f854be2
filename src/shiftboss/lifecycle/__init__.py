"""What every loop is made of: start, stop, ready, jittered tick, backoff. Calls model."""

from shiftboss.lifecycle.backoff import Backoff
from shiftboss.lifecycle.service import Service, sleep, ticks

__all__ = ["Backoff", "Service", "sleep", "ticks"]
