"""Chooses providers and their order, by model name or else by need."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shiftboss.extensions.ai.protocol import Need, Provider
from shiftboss.extensions.ai.providers.fallback import Fallback
from shiftboss.model.errors import ConfigError

PREFERRED = {Need.ADVANCED: "openai", Need.STANDARD: "azure", Need.BASIC: "ollama"}
LAST_RESORT = "local"
NEEDS = {
    "openai": "OPENAI_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT",
    "ollama": "OLLAMA_HOST",
}


@dataclass(frozen=True, slots=True)
class Deployment:
    """One place where a model is served, and its share of the calls."""

    provider: Provider
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Model:
    """A model from the settings, with its fallback models."""

    name: str
    deployments: Sequence[Deployment]
    fallback: Sequence[str] = ()

    def order(self) -> list[Provider]:
        """Return the deployments in random order, weighted so that heavier ones come first more often."""
        drawn = sorted(self.deployments, key=lambda each: random.random() ** (1 / each.weight), reverse=True)
        return [each.provider for each in drawn]


class Router:
    """The configured providers in the order of `ai.providers`, and the models of `ai.models`."""

    def __init__(self, providers: Sequence[Provider], models: Mapping[str, Model] | None = None) -> None:
        self.providers = {provider.name: provider for provider in providers}
        self.models = dict(models or {})
        if not providers and not self.models:
            raise ConfigError(
                "no AI provider is configured",
                hint="set OPENAI_API_KEY or OLLAMA_HOST, or add `local` to ai.providers",
            )

    def all_providers(self) -> list[Provider]:
        deployed = [each.provider for model in self.models.values() for each in model.deployments]
        return [*self.providers.values(), *deployed]

    def order(self, need: Need) -> list[Provider]:
        """Return the provider preferred for this need, then the others in the order of `ai.providers`."""
        first = self.providers.get(PREFERRED[need])
        others = [provider for provider in self.providers.values() if provider is not first]
        return [first, *others] if first is not None else others

    def route(self, need: Need, model: str | None = None) -> tuple[Fallback, str]:
        """Return the providers to ask, and a name for them that is the same in every process."""
        if model is None:
            order = self.order(need)
            if not order:
                raise ConfigError(
                    "no default AI provider is configured", hint=f"choose a model: {self._known()}"
                )
            return Fallback(order), f"{order[0].name}:{order[0].model}"
        if model in self.models:
            return self._of_model(self.models[model]), model
        serving = [p for p in self.providers.values() if model in (p.name, p.model)]
        if not serving:
            raise self._unknown(model)
        return Fallback(serving, serving), f"{serving[0].name}:{serving[0].model}"

    def _of_model(self, model: Model) -> Fallback:
        primary = model.order()
        order = list(primary)
        for name in model.fallback:
            order += (
                self.models[name].order()
                if name in self.models
                else self.route(Need.BASIC, name)[0].providers
            )
        return Fallback(list({each.name: each for each in order}.values()), primary)

    def embedding_route(
        self, name: str | None, model: str | None, default: str
    ) -> tuple[Fallback, str, str | None]:
        """Return the providers, a cache name for their vectors, and the model to request.

        If `model` is not in the settings, these are one provider and others with its embedding model: the
        provider that is called `name`, the one that `model` is or that has it, or else `default`.
        """
        if model is not None and model in self.models:
            return self._of_model(self.models[model]), model, None
        if name is None and model is not None:
            named = (
                each.name for each in self.providers.values() if model in (each.name, each.embedding_model)
            )
            name = model if model in NEEDS else next(named, None)
        name = name or default
        model = None if model == name else model
        first = self.providers.get(name)
        if first is None:
            raise self._unknown(name)
        others = [
            provider
            for provider in self.providers.values()
            if provider is not first and provider.embedding_model == first.embedding_model
        ]
        return Fallback([first, *others]), f"{name}:{model or first.embedding_model}", model

    def _unknown(self, model: str) -> ConfigError:
        if model in NEEDS:
            return ConfigError(
                f"provider {model!r} is not configured",
                hint=f"set {NEEDS[model]}, or choose one of: {self._known()}",
            )
        quoted = json.dumps(model, ensure_ascii=False)
        return ConfigError(
            f"there is no model {model!r}",
            hint=f"choose one of: {self._known()}; or add it, with its prices, to shiftboss.toml: "
            f"[[ai.models.{quoted}.deployments]] and below it model = {quoted}",
        )

    def _known(self) -> str:
        return ", ".join([*self.models, *self.providers])
