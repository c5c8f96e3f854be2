"""The `ai` section of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, SecretStr

from shiftboss.model.section import Section

ProviderName = Literal["openai", "azure", "ollama", "local"]
DAY = 86_400.0


class ProviderSettings(Section):
    """One remote provider. Unset keys and addresses are taken from the vendor's own environment variables."""

    enabled: bool = True
    api_key: SecretStr | None = Field(None, repr=False)
    api_key_file: Path | None = None
    base_url: str | None = None
    api_version: str | None = None
    model: str
    embedding_model: str
    embedding_dimensions: PositiveInt | None = None
    timeout: PositiveFloat = 60.0
    requests_per_minute: PositiveInt | None = None
    tokens_per_minute: PositiveInt | None = None
    daily_budget: PositiveFloat | None = Field(None, description="US dollars a day (UTC)")
    prompt_cost: float = Field(0.0, ge=0, description="US dollars per million tokens")
    completion_cost: float = Field(0.0, ge=0, description="US dollars per million tokens")
    embedding_cost: float = Field(0.0, ge=0, description="US dollars per million tokens")


class OpenAISettings(ProviderSettings):
    model: str = "gpt-4o"
    embedding_model: str = "text-embedding-3-small"
    prompt_cost: float = Field(2.5, ge=0)
    completion_cost: float = Field(10.0, ge=0)
    embedding_cost: float = Field(0.02, ge=0)


class AzureSettings(OpenAISettings):
    """`model` and `embedding_model` are the names of deployments; `base_url` is the resource's endpoint."""

    api_version: str | None = "2024-10-21"


class OllamaSettings(ProviderSettings):
    model: str = "llama3.2"
    embedding_model: str = "nomic-embed-text"
    timeout: PositiveFloat = 180.0


class BreakerSettings(Section):
    failures: PositiveInt = 5
    recovery: PositiveFloat = Field(30.0, description="seconds until an open circuit lets one probe through")


class RetrySettings(Section):
    attempts: PositiveInt = 3
    base: float = Field(1.0, ge=0, description="seconds before the second attempt; doubled each time")
    jitter: float = Field(1.0, ge=0, description="up to this many seconds more, at random")


class CacheSettings(Section):
    backend: Literal["postgres", "redis", "off"] = "postgres"
    redis_url: SecretStr | None = Field(None, repr=False)
    default_ttl: PositiveFloat = Field(7 * DAY, description="seconds")
    ttl: dict[str, PositiveFloat] = Field(
        default_factory=lambda: {"insight_generation": DAY, "classification": 30 * DAY},
        description="seconds, by task type",
    )
    stand_in_ttl: PositiveFloat = Field(300.0, description="seconds for an answer of a fallback provider")
    timeout: PositiveFloat = Field(1.0, description="seconds after which a slow cache counts as a miss")


class AISettings(Section):
    """Providers in fallback order, what they may cost, and how their trouble is handled."""

    providers: list[ProviderName] = Field(
        default=["openai", "azure", "ollama", "local"],
        description="fallback order; leave `local` out to hold work back rather than answer it locally",
    )
    embedding_provider: ProviderName = Field("local", description="vectors of different models do not mix")
    embedding_batch: PositiveInt = 256
    openai: OpenAISettings = Field(default_factory=OpenAISettings)
    azure: AzureSettings = Field(default_factory=AzureSettings)
    ollama: OllamaSettings = Field(default_factory=OllamaSettings)
    breaker: BreakerSettings = Field(default_factory=BreakerSettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    cache: CacheSettings = Field(default_factory=CacheSettings)
