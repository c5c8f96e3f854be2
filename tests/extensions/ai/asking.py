"""Questions of the tests: the keywords of `complete`, and what a provider gets of them."""

from __future__ import annotations

from typing import Any

from shiftboss.extensions.ai import Need
from shiftboss.extensions.ai.ask import inquiry
from shiftboss.extensions.ai.prompts import Prompts
from shiftboss.extensions.ai.protocol import Chat, Origin


def asked(
    template: str, content: str, schema: Any, need: Need = Need.STANDARD, variables: Any = None, **more: Any
) -> dict[str, Any]:
    given = {"content": content, **(variables or {})}
    return {"template": template, "schema": schema, "need": need, "variables": given, **more}


def chat(template: str, content: str, schema: Any, variables: Any = None) -> Chat:
    """As the local provider gets it: it looks at the name and the variables."""
    given = {"content": content, **(variables or {})}
    return Chat((), Origin(template), template, given, schema)


def rendered(template: str, **variables: Any) -> str:
    found = inquiry(None, None, {"template": template, "variables": variables}, Prompts())
    return str(found.chat.messages[-1]["content"])
