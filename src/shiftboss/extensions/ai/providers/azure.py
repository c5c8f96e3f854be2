"""Azure OpenAI: OpenAI's protocol, with deployments instead of models and a versioned address."""

from __future__ import annotations

from openai import AsyncAzureOpenAI, AsyncOpenAI

from shiftboss.extensions.ai.providers.openai import OpenAIProvider
from shiftboss.extensions.ai.settings import ProviderSettings


class AzureProvider(OpenAIProvider):
    def connect(self, settings: ProviderSettings, key: str) -> AsyncOpenAI:
        assert settings.base_url is not None
        return AsyncAzureOpenAI(
            api_key=key,
            azure_endpoint=settings.base_url,
            api_version=settings.api_version,
            timeout=settings.timeout,
            max_retries=0,
        )

    def max_tokens_parameter(self, settings: ProviderSettings) -> str:
        return "max_completion_tokens"
