"""Which providers are asked, in which order: by need first, then down the fallback order."""

from __future__ import annotations

from collections.abc import Sequence

from shiftboss.ai.protocol import Need, Provider
from shiftboss.ai.providers.fallback import Fallback
from shiftboss.model.errors import ConfigError

PREFERRED = {Need.ADVANCED: "openai", Need.STANDARD: "azure", Need.BASIC: "ollama"}
LAST_RESORT = "local"


class Router:
    """Holds the configured providers in fallback order."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        if not providers:
            raise ConfigError(
                "no AI provider is configured",
                hint="set OPENAI_API_KEY or OLLAMA_HOST, or add `local` to ai.providers",
            )
        self.providers = {provider.name: provider for provider in providers}
        self._routes = {need: Fallback(self.order(need)) for need in Need}

    def order(self, need: Need) -> list[Provider]:
        """The preferred provider, those behind it, those before it, and the local one last of all."""
        names = [name for name in self.providers if name != LAST_RESORT]
        wanted = PREFERRED[need]
        rank = {name: place for place, name in enumerate(PREFERRED.values())}
        start = rank[wanted]
        names.sort(key=lambda name: (rank.get(name, len(rank)) - start) % (len(rank) + 1))
        if LAST_RESORT in self.providers:
            names.append(LAST_RESORT)
        return [self.providers[name] for name in names]

    def route(self, need: Need) -> Fallback:
        return self._routes[need]

    def embedding_route(self, name: str) -> Fallback:
        """The named provider, and behind it those that serve the very same model."""
        first = self.providers.get(name)
        if first is None:
            known = ", ".join(self.providers)
            raise ConfigError(f"embedding provider {name!r} is not configured", hint=f"configured: {known}")
        others = [
            provider
            for provider in self.providers.values()
            if provider is not first and provider.embedding_model == first.embedding_model
        ]
        return Fallback([first, *others])
