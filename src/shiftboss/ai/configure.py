"""From settings and environment to guarded providers. Keys stay in the SDK clients and go nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from shiftboss.ai.gate import FleetGate, Gate, OpenGate, ProcessGate
from shiftboss.ai.guard import Guarded
from shiftboss.ai.protocol import Provider
from shiftboss.ai.tally import Tally
from shiftboss.db.ai import AIEngine
from shiftboss.model.errors import ConfigError
from shiftboss.model.settings_ai import AISettings, ProviderSettings, RetrySettings

LOCAL_TIMEOUT = 120.0
Maker = Callable[[ProviderSettings, Mapping[str, str]], Provider | None]


def read_key(settings: ProviderSettings, environment: Mapping[str, str], *names: str) -> str | None:
    """The key from the settings, its file, or the vendor's own variables."""
    if settings.api_key is not None:
        return settings.api_key.get_secret_value()
    if settings.api_key_file is not None:
        try:
            return settings.api_key_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(
                f"can not read the key file {settings.api_key_file}: {error.strerror}"
            ) from error
    return next((environment[name] for name in names if environment.get(name)), None)


def _with_address(settings: ProviderSettings, environment: Mapping[str, str], name: str) -> ProviderSettings:
    return settings.model_copy(update={"base_url": settings.base_url or environment.get(name) or None})


def make_openai(settings: ProviderSettings, environment: Mapping[str, str]) -> Provider | None:
    key = read_key(settings, environment, "OPENAI_API_KEY")
    if not key:
        return None
    from shiftboss.ai.providers.openai import OpenAIProvider

    return OpenAIProvider(_with_address(settings, environment, "OPENAI_BASE_URL"), key)


def make_azure(settings: ProviderSettings, environment: Mapping[str, str]) -> Provider | None:
    key = read_key(settings, environment, "AZURE_OPENAI_API_KEY")
    addressed = _with_address(settings, environment, "AZURE_OPENAI_ENDPOINT")
    if not key or not addressed.base_url:
        return None
    from shiftboss.ai.providers.azure import AzureProvider

    version = environment.get("OPENAI_API_VERSION") or settings.api_version
    return AzureProvider(addressed.model_copy(update={"api_version": version}), key)


def make_ollama(settings: ProviderSettings, environment: Mapping[str, str]) -> Provider | None:
    addressed = _with_address(settings, environment, "OLLAMA_HOST")
    if not addressed.base_url:
        return None
    from shiftboss.ai.providers.ollama import OllamaProvider

    return OllamaProvider(addressed, read_key(settings, environment, "OLLAMA_API_KEY"))


MAKERS: dict[str, Maker] = {"openai": make_openai, "azure": make_azure, "ollama": make_ollama}


def configured(settings: AISettings, environment: Mapping[str, str] | None = None) -> dict[str, bool]:
    """Every provider of the fallback order, and whether settings and environment are enough to use it."""
    environment = os.environ if environment is None else environment
    return {
        name: name == "local" or _make(name, settings, environment) is not None for name in settings.providers
    }


def _make(name: str, settings: AISettings, environment: Mapping[str, str]) -> Provider | None:
    own: ProviderSettings = getattr(settings, name)
    return MAKERS[name](own, environment) if own.enabled else None


async def build_providers(
    settings: AISettings, shared: AIEngine | None, tally: Tally, environment: Mapping[str, str] | None = None
) -> list[Provider]:
    """The configured ones of `settings.providers`, guarded, in that order."""
    environment = os.environ if environment is None else environment
    built: list[Provider] = []
    for name in settings.providers:
        if name == "local":
            built.append(await _build_local(shared, settings, tally))
            continue
        provider = _make(name, settings, environment)
        if provider is not None:
            built.append(await _guard(provider, getattr(settings, name), settings, shared))
    return built


async def _guard(
    provider: Provider, own: ProviderSettings, settings: AISettings, shared: AIEngine | None
) -> Provider:
    alone = ProcessGate(provider.name, own, settings.breaker)
    gate: Gate = alone
    if shared is not None:
        await _announce(shared, provider, own, settings)
        gate = FleetGate(provider.name, shared, alone, lease=own.timeout + 30)
    return Guarded(provider, gate, settings.retry, own.timeout)


async def _announce(
    shared: AIEngine, provider: Provider, own: ProviderSettings | None, settings: AISettings
) -> None:
    await shared.ai_configure(
        provider.name,
        model=provider.model,
        requests_per_minute=own.requests_per_minute if own else None,
        tokens_per_minute=own.tokens_per_minute if own else None,
        daily_budget=own.daily_budget if own else None,
        failure_limit=settings.breaker.failures,
        recovery=settings.breaker.recovery,
    )


async def _build_local(shared: AIEngine | None, settings: AISettings, tally: Tally) -> Provider:
    from shiftboss.ai.providers.local import LocalProvider

    provider = LocalProvider()
    if shared is not None:
        await _announce(shared, provider, None, settings)
    return Guarded(provider, OpenGate(provider.name, tally), RetrySettings(attempts=1), LOCAL_TIMEOUT)
