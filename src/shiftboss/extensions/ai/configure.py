"""Builds providers from settings and environment. Only the SDK clients hold the keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from shiftboss.extensions.ai.admission import Admissions, FleetAdmissions, OpenAdmissions, ProcessAdmissions
from shiftboss.extensions.ai.guard import Guarded
from shiftboss.extensions.ai.protocol import Provider, Wanted
from shiftboss.extensions.ai.records import Recorder
from shiftboss.extensions.ai.router import NEEDS, Deployment, Model, Router
from shiftboss.extensions.ai.secrets import remember_secret
from shiftboss.extensions.ai.settings import (
    AISettings,
    DeploymentSettings,
    ModelSettings,
    ProviderSettings,
    RetrySettings,
)
from shiftboss.extensions.ai.settler import Settler
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.extensions.ai.usage import UsageBuffer
from shiftboss.model.errors import ConfigError

LOCAL_TIMEOUT = 120.0
NO_KEY = "none"  # SDKs require a key, even for servers that need none
# Other variables must never be sent to a base_url, which any role that may change ai.vectorizer can set.
KEY_NAME = re.compile("[A-Z][A-Z0-9_]*_KEY")
LIMITS = ("requests_per_minute", "tokens_per_minute", "daily_budget")
PRICES = ("prompt_cost", "completion_cost", "embedding_cost")
Maker = Callable[[ProviderSettings, Mapping[str, str], str], Provider | None]


def read_key(settings: ProviderSettings, environment: Mapping[str, str]) -> str | None:
    """Return the key from the settings, its file, or the vendor's own environment variable."""
    key = _read_key(settings, environment)
    remember_secret(key)
    return key


def _read_key(settings: ProviderSettings, environment: Mapping[str, str]) -> str | None:
    if settings.api_key is not None:
        return settings.api_key.get_secret_value()
    if settings.api_key_file is not None:
        return _read_file(settings.api_key_file)
    return environment.get(settings.variables["api_key"]) or None


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"cannot read the key file {path}: {error.strerror}",
            hint="check api_key_file and its permissions",
        ) from error


def _with_address(settings: ProviderSettings, environment: Mapping[str, str]) -> ProviderSettings:
    address = settings.base_url or environment.get(settings.variables["base_url"]) or None
    return settings.model_copy(update={"base_url": address})


def make_openai(settings: ProviderSettings, environment: Mapping[str, str], name: str) -> Provider | None:
    key = read_key(settings, environment)
    if not key:
        return None
    from shiftboss.extensions.ai.providers.openai import OpenAIProvider

    return OpenAIProvider(_with_address(settings, environment), key, name)


def make_azure(settings: ProviderSettings, environment: Mapping[str, str], name: str) -> Provider | None:
    key = read_key(settings, environment)
    addressed = _with_address(settings, environment)
    if not key or not addressed.base_url:
        return None
    from shiftboss.extensions.ai.providers.azure import AzureProvider

    version = environment.get("OPENAI_API_VERSION") or settings.api_version
    return AzureProvider(addressed.model_copy(update={"api_version": version}), key, name)


def make_ollama(settings: ProviderSettings, environment: Mapping[str, str], name: str) -> Provider | None:
    addressed = _with_address(settings, environment)
    if not addressed.base_url:
        return None
    from shiftboss.extensions.ai.providers.ollama import OllamaProvider

    return OllamaProvider(addressed, read_key(settings, environment), name)


MAKERS: dict[str, Maker] = {"openai": make_openai, "azure": make_azure, "ollama": make_ollama}


def configured(settings: AISettings, environment: Mapping[str, str] | None = None) -> dict[str, bool]:
    """Return each provider and deployment, and whether it has the key and address it needs."""
    environment = os.environ if environment is None else environment
    ready: dict[str, bool] = {
        name: name == "local" or _make(name, settings, environment) is not None for name in settings.providers
    }
    for name, model in settings.models.items():
        for number, own in enumerate(model.deployments, 1):
            try:
                deployed(settings, environment, f"{name}/{number}", model, own)
                ready[f"{name}/{number}"] = True
            except ConfigError:
                ready[f"{name}/{number}"] = False
    return ready


def _make(name: str, settings: AISettings, environment: Mapping[str, str]) -> Provider | None:
    own: ProviderSettings = getattr(settings, name)
    return MAKERS[name](own, environment, name) if own.enabled else None


def deployed(
    settings: AISettings,
    environment: Mapping[str, str],
    place: str,
    model: ModelSettings,
    own: DeploymentSettings,
) -> tuple[Provider, ProviderSettings]:
    """Return the provider called `place` that serves a deployment, and its settings."""
    merged = _merged(getattr(settings, own.provider), model, own)
    merged = merged.model_copy(update=_own_key(own, environment, place))
    provider = MAKERS[own.provider](merged, environment, place)
    if provider is None:
        raise ConfigError(
            f"ai.models: {place} has no key or address",
            hint=f"set its base_url and api_key_env, or {NEEDS[own.provider]}",
        )
    return provider, merged


def _merged(base: ProviderSettings, model: ModelSettings, own: DeploymentSettings) -> ProviderSettings:
    """Return the provider's section, overridden by the settings of the deployment and the model."""
    changes = {
        name: getattr(own, name)
        for name in ("api_version", "base_url", "timeout", "strict")
        if getattr(own, name) is not None
    }
    limits = {name: getattr(own, name) for name in LIMITS}
    prices = {name: getattr(model, name) for name in PRICES}
    shape = {"context_window": model.context_window, "embedding_dimensions": model.embedding_dimensions}
    names = {"model": own.model, "embedding_model": own.model, "enabled": True}
    return base.model_copy(update=changes | limits | prices | shape | names)


def _own_key(own: DeploymentSettings, environment: Mapping[str, str], place: str) -> dict[str, object]:
    """Return the key of a deployment. A vendor's key is never sent to another server."""
    if own.api_key_env is not None:
        key = environment.get(own.api_key_env)
        if not key:
            raise ConfigError(
                f"ai.models: {place} needs the environment variable {own.api_key_env}",
                hint="set it to the API key, also for the workers",
            )
        return {"api_key": SecretStr(key), "api_key_file": None}
    if own.api_key is not None or own.api_key_file is not None:
        return {"api_key": own.api_key, "api_key_file": own.api_key_file}
    return {"api_key": SecretStr(NO_KEY)} if own.base_url is not None else {}


class Builder:
    """Builds the router of one engine."""

    def __init__(
        self,
        settings: AISettings,
        environment: Mapping[str, str],
        usage_buffer: UsageBuffer,
        shared: AIEngine | None = None,
        settler: Settler | None = None,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._shared = shared
        self._settler = settler
        self._usage_buffer = usage_buffer
        self._recorder = Recorder(settings.record)

    async def router(self) -> Router:
        """Return a router for the configured providers of `ai.providers`, in order, and the models."""
        built: list[Provider] = []
        for name in self._settings.providers:
            if name == "local":
                built.append(await self._local())
            elif (provider := _make(name, self._settings, self._environment)) is not None:
                built.append(await self._guard(provider, getattr(self._settings, name)))
        models = {name: await self._model(name, own) for name, own in self._settings.models.items()}
        self._check_fallbacks(models)
        return Router(built, models)

    async def custom(self, wanted: Wanted) -> Provider:
        """Return a provider with another address or key, and with its own breaker and limits.

        The configured key is never sent to another address, where the owner of `base_url` could read it.
        """
        kind = wanted.provider or ""
        if kind not in MAKERS:
            raise ConfigError(
                f"provider {kind!r} takes neither base_url nor api_key_name",
                hint=f"use one of {', '.join(MAKERS)}",
            )
        own: ProviderSettings = getattr(self._settings, kind)
        changes: dict[str, object] = {}
        if wanted.base_url:
            changes = {"base_url": wanted.base_url, "api_key": SecretStr(NO_KEY), "api_key_file": None}
        if wanted.api_key_name:
            changes |= {"api_key": self._named_key(wanted.api_key_name), "api_key_file": None}
        where = urlsplit(wanted.base_url or own.base_url or "").netloc.rpartition("@")[2] or "its own address"
        key = f" with {wanted.api_key_name}" if wanted.api_key_name else ""
        settings = own.model_copy(update=changes)
        provider = MAKERS[kind](settings, self._environment, f"{kind} at {where}{key}")
        if provider is None:
            raise ConfigError(f"provider {kind!r} is not configured", hint="set its key and address")
        return await self._guard(provider, settings)

    def _named_key(self, name: str) -> SecretStr:
        if not KEY_NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a valid name for a key variable",
                hint="use a variable whose name ends in _KEY, such as MY_EMBEDDING_API_KEY",
            )
        if not self._environment.get(name):
            raise ConfigError(f"the environment variable {name} is not set", hint="set it for the workers")
        return SecretStr(self._environment[name])

    def _check_fallbacks(self, models: Mapping[str, Model]) -> None:
        for model in models.values():
            for name in model.fallback:
                if name not in models and name not in self._settings.providers:
                    raise ConfigError(
                        f"ai.models.{model.name}.fallback: there is no model or provider {name!r}",
                        hint=f"use one of {', '.join([*models, *self._settings.providers])}",
                    )

    async def _model(self, name: str, model: ModelSettings) -> Model:
        deployments = []
        for number, own in enumerate(model.deployments, 1):
            place = f"{name}/{number}"
            provider, settings = deployed(self._settings, self._environment, place, model, own)
            deployments.append(Deployment(await self._guard(provider, settings), own.weight))
        return Model(name, deployments, model.fallback)

    async def _guard(self, provider: Provider, own: ProviderSettings) -> Provider:
        settings = self._settings
        admission: Admissions = ProcessAdmissions(provider.name, own, settings.breaker)
        if self._shared is not None and self._settler is not None:
            await self._announce(self._shared, provider, own)
            admission = FleetAdmissions(provider.name, self._shared, self._settler, settings.record.keep)
        return Guarded(provider, admission, settings.retry, own.timeout, self._recorder, own.context_window)

    async def _announce(self, shared: AIEngine, provider: Provider, own: ProviderSettings | None) -> None:
        await shared.ai_configure(
            provider.name,
            model=provider.model,
            requests_per_minute=own.requests_per_minute if own else None,
            tokens_per_minute=own.tokens_per_minute if own else None,
            daily_budget=own.daily_budget if own else None,
            failure_limit=self._settings.breaker.failures,
            recovery=self._settings.breaker.recovery,
        )

    async def _local(self) -> Provider:
        from shiftboss.extensions.ai.providers.local import LocalProvider

        provider = LocalProvider()
        if self._shared is not None:
            await self._announce(self._shared, provider, None)
        admission = OpenAdmissions(provider.name, self._usage_buffer)
        return Guarded(provider, admission, RetrySettings(attempts=1), LOCAL_TIMEOUT, self._recorder)
