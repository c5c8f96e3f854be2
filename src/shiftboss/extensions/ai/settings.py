"""The `ai` section of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, SecretStr

from shiftboss.model.section import Section

ProviderName = Literal["openai", "azure", "ollama", "local"]
DAY = 86_400.0


class ProviderSettings(Section):
    """One remote provider. Unset keys and addresses are read from the vendor's own environment variables."""

    enabled: bool = True
    """Whether this provider is used."""
    api_key: SecretStr | None = Field(None, repr=False)
    """API key. Default: the vendor's own environment variable."""
    api_key_file: Path | None = None
    """File that holds the API key."""
    base_url: str | None = None
    """Address of the API. Default: the vendor's own environment variable, or else its public address."""
    api_version: str | None = None
    """Version of the API (Azure)."""
    model: str
    """Default model for completions."""
    embedding_model: str
    """Default model for embeddings."""
    embedding_dimensions: PositiveInt | None = None
    """Dimensions to request, if the model supports it."""
    timeout: PositiveFloat = 60.0
    """Seconds for one call."""
    context_window: PositiveInt | None = None
    """Tokens that prompt and answer may have together."""
    strict: bool = True
    """Use the provider's strict mode for schemas that it supports."""
    requests_per_minute: PositiveInt | None = None
    """Calls per minute, for the whole fleet."""
    tokens_per_minute: PositiveInt | None = None
    """Tokens per minute, for the whole fleet."""
    daily_budget: PositiveFloat | None = None
    """US dollars per day (UTC), for the whole fleet."""
    prompt_cost: float = Field(0.0, ge=0)
    """US dollars per million tokens."""
    completion_cost: float = Field(0.0, ge=0)
    """US dollars per million tokens."""
    embedding_cost: float = Field(0.0, ge=0)
    """US dollars per million tokens."""

    def variable(self, field: str) -> str | None:
        return None if field == "api_key" and self.api_key_file is not None else super().variable(field)


class OpenAISettings(ProviderSettings):
    variables: ClassVar = {"api_key": "OPENAI_API_KEY", "base_url": "OPENAI_BASE_URL"}
    model: str = "gpt-4o"
    context_window: PositiveInt | None = 128_000
    embedding_model: str = "text-embedding-3-small"
    prompt_cost: float = Field(2.5, ge=0)
    completion_cost: float = Field(10.0, ge=0)
    embedding_cost: float = Field(0.02, ge=0)


class AzureSettings(OpenAISettings):
    """Azure OpenAI: `model` and `embedding_model` are deployments, `base_url` is the resource's endpoint."""

    variables: ClassVar = {"api_key": "AZURE_OPENAI_API_KEY", "base_url": "AZURE_OPENAI_ENDPOINT"}
    api_version: str | None = "2024-10-21"


class OllamaSettings(ProviderSettings):
    variables: ClassVar = {"api_key": "OLLAMA_API_KEY", "base_url": "OLLAMA_HOST"}
    model: str = "llama3.2"
    embedding_model: str = "nomic-embed-text"
    timeout: PositiveFloat = 180.0


class DeploymentSettings(Section):
    """One place where a model is served. Unset values are taken from the section of its provider."""

    provider: Literal["openai", "azure", "ollama"] = "openai"
    model: str
    """Name of the model on this server; with Azure, the name of the deployment."""
    api_key: SecretStr | None = Field(None, repr=False)
    """API key."""
    api_key_file: Path | None = None
    """File that holds the API key."""
    api_key_env: str | None = None
    """Environment variable that holds the API key."""
    base_url: str | None = None
    api_version: str | None = None
    timeout: PositiveFloat | None = None
    strict: bool | None = None
    weight: PositiveFloat = 1.0
    """Share of the calls, relative to the other deployments."""
    requests_per_minute: PositiveInt | None = None
    tokens_per_minute: PositiveInt | None = None
    daily_budget: PositiveFloat | None = None
    """US dollars per day (UTC), for the whole fleet."""


class ModelSettings(Section):
    """A model under a name of your choice: its deployments, prices and context window."""

    deployments: list[DeploymentSettings] = Field(min_length=1)
    fallback: list[str] = Field(default_factory=list)
    """Models or providers to ask when this one cannot answer."""
    context_window: PositiveInt | None = None
    """Tokens that prompt and answer may have together."""
    prompt_cost: float = Field(0.0, ge=0)
    """US dollars per million tokens."""
    completion_cost: float = Field(0.0, ge=0)
    """US dollars per million tokens."""
    embedding_cost: float = Field(0.0, ge=0)
    """US dollars per million tokens."""
    embedding_dimensions: PositiveInt | None = None


class BreakerSettings(Section):
    failures: PositiveInt = 5
    """Consecutive failures that open the circuit."""
    recovery: PositiveFloat = 30.0
    """Seconds until an open circuit lets one probe through."""


class RetrySettings(Section):
    attempts: PositiveInt = 3
    """Attempts per call, including the first."""
    base: float = Field(1.0, ge=0)
    """Seconds before the second attempt; doubled for each further attempt."""
    jitter: float = Field(1.0, ge=0)
    """Maximum random delay, in seconds, added to each pause."""


class CacheSettings(Section):
    backend: Literal["postgres", "redis", "off"] = "postgres"
    """Where answers are cached."""
    redis_url: SecretStr | None = Field(None, repr=False)
    """Address of the server for the backend `redis`."""
    default_ttl: PositiveFloat = 7 * DAY
    """Seconds for which an answer is cached."""
    ttl: dict[str, PositiveFloat] = Field(
        default_factory=lambda: {"insight_generation": DAY, "classification": 30 * DAY}
    )
    """Seconds for which an answer is cached, by task type."""
    embeddings: bool = True
    """Also cache vectors of remote providers."""
    stand_in_ttl: PositiveFloat = 300.0
    """Seconds for which an answer of a fallback provider is cached."""
    timeout: PositiveFloat = 1.0
    """Seconds after which a slow cache counts as a miss."""


class RecordSettings(Section):
    """How prompts and answers are recorded. API keys are always masked."""

    sample: float = Field(1.0, ge=0, le=1)
    """Share of calls whose texts are recorded."""
    keep: PositiveFloat = 7 * DAY
    """Seconds after which the texts are deleted. The calls themselves are kept for 30 days."""
    redact: list[str] = Field(default_factory=list)
    """Regular expressions whose matches are masked in the texts."""
    longest: PositiveInt = 20_000
    """Maximum length of each recorded text, in characters."""


class AISettings(Section):
    """Providers in fallback order, their limits, and how failures are handled."""

    providers: list[ProviderName] = Field(default=["openai", "azure", "ollama", "local"])
    """Fallback order after the provider preferred for the need. Without `local`, tasks wait for a remote
    provider instead of getting a local answer."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Models by name; see [models](../how-to/ai.md#models)."""
    prompts: Path | None = None
    """Folder with your own prompt templates."""
    embedding_provider: ProviderName = Field("local")
    """Provider of embeddings. Vectors of different models cannot be compared."""
    embedding_batch: PositiveInt = 256
    """Texts per embedding request."""
    openai: OpenAISettings = Field(default_factory=OpenAISettings.model_construct)
    azure: AzureSettings = Field(default_factory=AzureSettings.model_construct)
    ollama: OllamaSettings = Field(default_factory=OllamaSettings.model_construct)
    breaker: BreakerSettings = Field(default_factory=BreakerSettings.model_construct)
    retry: RetrySettings = Field(default_factory=RetrySettings.model_construct)
    cache: CacheSettings = Field(default_factory=CacheSettings.model_construct)
    record: RecordSettings = Field(default_factory=RecordSettings.model_construct)
