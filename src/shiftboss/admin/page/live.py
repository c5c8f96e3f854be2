"""A part of a page that follows what the server knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from markupsafe import Markup
from nicegui.element import Element
from nicegui.events import GenericEventArguments

Act = Callable[[str, dict[str, str]], Awaitable[None]]


class Live(Element, component="assets/live.js"):
    """HTML that is patched in place: focus, scroll position and open details survive an update.

    Elements with `data-act` (buttons by click, forms by submit) call `act` with that name and their values.
    """

    def __init__(self, text: Markup, act: Act) -> None:
        super().__init__()
        self._props["html"] = str(text)

        async def heard(event: GenericEventArguments) -> None:
            name, values = event.args
            await act(str(name), {str(key): str(value) for key, value in dict[Any, Any](values).items()})

        self.on("act", heard)

    def show(self, text: Markup) -> None:
        """Send the text if it is another one."""
        if self._props["html"] != text:
            self._props["html"] = str(text)
            self.update()
