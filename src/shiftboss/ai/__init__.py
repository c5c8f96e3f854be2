"""Providers, router, cache and prompts. Calls model, and db for what the fleet shares."""

from shiftboss.ai.engine import AI
from shiftboss.ai.protocol import Answer, Embeddings, Need, Provider, Request, Usage

__all__ = ["AI", "Answer", "Embeddings", "Need", "Provider", "Request", "Usage"]
