"""What can go wrong with a provider, told apart by what must happen next."""

from __future__ import annotations

from collections.abc import Sequence

from shiftboss.extensions.ai.protocol import Usage
from shiftboss.extensions.ai.secrets import redact
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.task import storable

LONGEST = 500


class ProviderError(ShiftbossError):
    """A provider did not answer; the next one in the fallback order is asked.

    `usage` is what it billed all the same; None means that nobody knows, and the estimate counts.
    `of_request` tells whether the request is to blame: then the same request fails again, others need not.
    """

    of_request = False

    def __init__(
        self, provider: str, message: str, *, hint: str | None = None, usage: Usage | None = None
    ) -> None:
        # Redacted before it is cut: half a key is a secret, too.
        super().__init__(f"{provider}: {redact(storable(message))[:LONGEST]}", hint=hint)
        self.provider = provider
        self.usage: Usage | None = usage or Usage()


class Unavailable(ProviderError):
    """Server error, timeout or broken connection: tried again, and counted by the circuit breaker.

    `billed`: the request had reached the server, which may bill an answer that never arrived.
    """

    def __init__(self, provider: str, message: str, *, billed: bool = False) -> None:
        super().__init__(provider, message)
        if billed:
            self.usage = None


class Refused(ProviderError):
    """The key or the model is not accepted: not tried again, and counted by the circuit breaker."""


class Unsuitable(ProviderError):
    """The provider cannot do this request at all: not tried again, and not the provider's failure."""

    of_request = True


class TooLong(Unsuitable):
    """The request does not fit into the model's context window; a larger model may take it."""


class Declined(ProviderError):
    """The model or a content filter said no. Billed; the same model is not asked again."""

    of_request = True


class Truncated(ProviderError):
    """The answer hit the limit of tokens before it was whole. Billed; the same model is not asked again."""

    of_request = True


class Malformed(ProviderError):
    """The answer does not satisfy the schema."""

    of_request = True

    def __init__(self, provider: str, error: str, answer: str, usage: Usage | None = None) -> None:
        super().__init__(provider, f"malformed answer: {error}", usage=usage)
        self.error = error
        self.answer = answer


class Exhausted(ProviderError):
    """Every provider of a fallback order failed."""

    def __init__(self, errors: Sequence[ProviderError]) -> None:
        told = "; ".join(str(error) for error in errors) or "no provider can do this"
        super().__init__("fallback", told, hint="see `shiftboss providers`")
        self.errors = tuple(errors)
        self.of_request = bool(errors) and all(error.of_request for error in errors)


class Held(ProviderError):
    """The provider may not be asked now: its circuit is open, a limit is reached or a budget is spent."""

    def __init__(self, provider: str, reason: str, seconds: float) -> None:
        super().__init__(provider, f"{reason}, free again in {seconds:.1f} s")
        self.reason = redact(reason)
        self.seconds = seconds


class Limited(Held):
    """The provider itself said "too many requests"."""

    def __init__(self, provider: str, seconds: float) -> None:
        super().__init__(provider, "rate limited", seconds)


class Unadmitted(Held):
    """The database, which keeps the budgets, cannot be asked: nothing that costs money is called."""
