"""Errors of providers, one class per reaction that they need."""

from __future__ import annotations

from collections.abc import Sequence

from shiftboss.extensions.ai.protocol import Usage
from shiftboss.extensions.ai.secrets import redact, unquoted
from shiftboss.model.errors import Defer, ShiftbossError
from shiftboss.model.task import storable

MAX_LENGTH = 500
NO_MODEL = (
    "no model that writes text is configured: "
    "set OPENAI_API_KEY, or AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT, "
    "or OLLAMA_HOST"
)


class ProviderError(ShiftbossError):
    """A provider did not answer; the next one in the fallback order is asked.

    `usage` is what the provider billed nevertheless; None means unknown, and the estimate counts.
    `of_request` says that the request caused the error: repeating it fails again, other requests may succeed.
    `detail` is text of the server, the SDK or a validator, which may quote the request.
    """

    of_request = False

    def __init__(
        self, provider: str, message: str, *, detail: str = "", hint: str | None = None,
        usage: Usage | None = None,
    ) -> None:  # fmt: skip
        # Redact before cutting: a part of a key must not remain.
        self._prefix = f"{provider}: " * bool(provider) + redact(storable(message))[:MAX_LENGTH]
        self._detail = redact(storable(detail))[:MAX_LENGTH]
        super().__init__(self._joined(), hint=hint)
        self.provider = provider
        self.usage: Usage | None = usage or Usage()

    def conceal(self, request: str) -> None:
        """Mask what the detail quotes from the request. Errors are stored and logged."""
        self._detail = unquoted(self._detail, request)
        self.message = self._joined()
        self.args = (self.message,)

    def _joined(self) -> str:
        return f"{self._prefix}: {self._detail}" if self._detail else self._prefix


class Unavailable(ProviderError):
    """A server error, timeout or broken connection; retried, and counted by the circuit breaker.

    `billed` says that the server received the request, so it may bill an answer that never arrived.
    """

    def __init__(self, provider: str, message: str, *, detail: str = "", billed: bool = False) -> None:
        super().__init__(provider, message, detail=detail)
        if billed:
            self.usage = None


class TimedOut(Unavailable):
    """The caller's timeout, shorter than the provider's, has passed; not counted by the circuit breaker."""


class Refused(ProviderError):
    """The provider does not accept the key or the model; not retried, and counted by the circuit breaker."""


class Unsuitable(ProviderError):
    """The provider does not support the request; not retried, and not counted by the circuit breaker."""

    of_request = True


class TooLong(Unsuitable):
    """The request exceeds the model's context window; a larger model may accept it."""


class Declined(ProviderError):
    """The model or a content filter declined to answer. Billed; the same model is not asked again."""

    of_request = True


class Truncated(ProviderError):
    """The answer was cut off at the token limit. Billed; the same model is not asked again."""

    of_request = True


class Malformed(ProviderError):
    """The answer does not satisfy the schema."""

    of_request = True

    def __init__(self, provider: str, error: str, answer: str, usage: Usage | None = None) -> None:
        super().__init__(provider, "malformed answer", detail=error, usage=usage)
        self.error = error
        self.answer = answer


class Exhausted(ProviderError):
    """Every provider of a fallback order failed. The message has the error of each."""

    def __init__(self, errors: Sequence[ProviderError]) -> None:
        message = "; ".join(str(error) for error in errors) or "no provider supports this request"
        hint: str | None = "`shiftboss providers` shows the state and the last error of each provider"
        if errors and all(isinstance(error, Unsuitable) and error.provider == "local" for error in errors):
            message, hint = f"{NO_MODEL} ({message})", None
        super().__init__("", message, hint=next((error.hint for error in errors if error.hint), hint))
        self.errors = tuple(errors)
        self.of_request = bool(errors) and all(error.of_request for error in errors)


class Held(ProviderError):
    """The provider cannot be called now: its circuit is open, a limit is reached or a budget is spent."""

    def __init__(self, provider: str, reason: str, seconds: float) -> None:
        super().__init__(provider, f"{reason}, available again in {seconds:.1f} s")
        self.reason = redact(reason)
        self.seconds = seconds

    def deferral(self) -> Defer:
        """Return what a handler raises. The reason is clear text: SQL finds tasks that a limit deferred."""
        return Defer(self.reason, self.seconds, hint=self.hint or str(self), clear=True)


class TooCostly(ProviderError):
    """The call costs more than a whole daily budget, so waiting does not help."""

    of_request = True

    def __init__(self, provider: str, message: str) -> None:
        super().__init__(provider, message, hint="raise the budget, or lower the estimate with max_tokens")


class Limited(Held):
    """The provider answered with 429, "too many requests"."""

    def __init__(self, provider: str, seconds: float) -> None:
        super().__init__(provider, "rate limited", seconds)


class Unadmitted(Held):
    """The database, which holds the budgets, is unavailable, so no provider that costs money is called."""
