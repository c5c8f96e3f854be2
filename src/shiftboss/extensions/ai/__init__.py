"""The AI engine: providers, router, cache, budgets and prompts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shiftboss.extension import Command, Extension

if TYPE_CHECKING:
    from shiftboss.extensions.ai.attributes import ai_of
    from shiftboss.extensions.ai.client import Client, Stream, SyncClient
    from shiftboss.extensions.ai.engine import AI
    from shiftboss.extensions.ai.protocol import Answer, Embeddings, Need, Provider, Tool, ToolCall, Usage

_MODULES = {
    "attributes": ("ai_of",),
    "engine": ("AI",),
    "client": ("Client", "Stream", "SyncClient"),
    "protocol": ("Answer", "Embeddings", "Need", "Provider", "Tool", "ToolCall", "Usage"),
}
__all__ = [
    "AI", "Answer", "Client", "Embeddings", "Need", "Provider", "Stream", "SyncClient", "Tool",
    "ToolCall", "Usage", "ai_of", "extension",
]  # fmt: skip

extension = Extension(
    name="ai",
    package=__name__,
    extra="ai",
    extras={"ai": "wordllama", "redis": "redis"},
    settings={"ai": f"{__name__}.settings:AISettings"},
    attributes={
        "Context.ai": f"{__name__}.attributes:of_context",
        "Context.sync_ai": f"{__name__}.attributes:of_thread",
        "App.ai": f"{__name__}.attributes:of_app",
        "Sync.ai": f"{__name__}.attributes:of_sync",
    },
    asked={"ai": f"{__name__}.remote:answer"},
    families={"ai": f"{__name__}.store:AIEngine"},
    commands={
        "ai": Command(
            f"{__name__}.commands:app", "ask AI models; calls, templates, limits and budgets", "ai"
        ),
        "providers": Command(
            f"{__name__}.cli:app", "show AI providers: circuit, limits, spend and budget", "ai"
        ),
    },
    loggers=("openai", "wordllama"),
    pages=(f"{__name__}.page:PAGES", f"{__name__}.page_calls:PAGES", f"{__name__}.page_limits:PAGES"),
    cards=(f"{__name__}.page:CARD",),
    stories=(f"{__name__}.story:STORY",),
    routes=(f"{__name__}.api:router",),
    rules=(f"{__name__}.rules:RULES",),
    duties=(f"{__name__}.store:duties",),
    metrics=(f"{__name__}.metrics:calls",),
    alerts=(f"{__name__}.alerts:budgets",),
    findings=(f"{__name__}.findings:providers",),
)


def __getattr__(name: str) -> Any:
    # Import lazily: discovering extensions must not load the engine.
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
