"""What can go wrong with a provider, told apart by what must happen next."""

from __future__ import annotations

from collections.abc import Sequence

from shiftboss.ai.protocol import Usage
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.task import storable


class ProviderError(ShiftbossError):
    """A provider did not answer; the next one in the fallback order is asked.

    `of_request` tells whether the request is to blame: then the same request fails again, others need not.
    """

    of_request = False

    def __init__(self, provider: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{provider}: {storable(message)}", hint=hint)
        self.provider = provider


class Unavailable(ProviderError):
    """Server error, timeout or broken connection: tried again, and counted by the circuit breaker."""


class Refused(ProviderError):
    """The key or the model is not accepted: not tried again, and counted by the circuit breaker."""


class Unsuitable(ProviderError):
    """The provider can not do this request at all: not tried again, and not the provider's failure."""

    of_request = True


class Malformed(ProviderError):
    """The answer does not satisfy the schema."""

    of_request = True

    def __init__(self, provider: str, error: str, answer: str, usage: Usage | None = None) -> None:
        super().__init__(provider, f"malformed answer: {error}")
        self.error = error
        self.answer = answer
        self.usage = usage or Usage()


class Exhausted(ProviderError):
    """Every provider of a fallback order was asked in vain."""

    def __init__(self, errors: Sequence[ProviderError]) -> None:
        told = "; ".join(str(error) for error in errors) or "no provider can do this"
        super().__init__("fallback", told, hint="see `shiftboss providers`")
        self.errors = tuple(errors)
        self.of_request = bool(errors) and all(error.of_request for error in errors)


class Held(ProviderError):
    """The provider may not be asked now: its circuit is open, a limit is reached or its budget is spent."""

    def __init__(self, provider: str, reason: str, seconds: float) -> None:
        super().__init__(provider, f"{reason}, free again in {seconds:.1f} s")
        self.reason = reason
        self.seconds = seconds


class Limited(Held):
    """The provider itself said "too many requests"."""

    def __init__(self, provider: str, seconds: float) -> None:
        super().__init__(provider, "rate limited", seconds)
