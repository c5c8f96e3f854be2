"""Fields to fill in, and what was filled in as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from markupsafe import Markup

from shiftboss.admin.page.markup import html, join
from shiftboss.model.errors import UsageError

SELECTED = Markup(" selected")
CHECKED = Markup(" checked")


def select(
    name: str,
    label: str,
    options: Mapping[str, str] | Sequence[str],
    chosen: str | None,
    *,
    none: str | None = "any",
) -> Markup:
    """The first choice is `none`, if there is such a choice."""
    pairs = options if isinstance(options, Mapping) else {option: option for option in options}
    first = {} if none is None else {"": none}
    shown = join(
        html('<option value="{}"{}>{}</option>', key, SELECTED if key == chosen else "", text)
        for key, text in {**first, **pairs}.items()
    )
    return html('<label>{}<select name="{}">{}</select></label>', label, name, shown)


def field(
    name: str,
    label: str,
    value: object = "",
    kind: str = "text",
    placeholder: str = "",
    *,
    known: Sequence[str] = (),
    needed: bool = False,
    fixed: bool = False,
) -> Markup:
    """One line to fill in; `known` words are offered, others may be typed."""
    listed = f"known-{name}" if known else ""
    offered = join(html('<option value="{}"></option>', word) for word in known)
    extra = [html(' list="{}"', listed)] if known else []
    extra += [Markup(" required")] if needed else []
    extra += [Markup(" readonly")] if fixed else []
    return html(
        '<label>{}<input name="{}" type="{}" value="{}" placeholder="{}"{}></label>{}',
        label,
        name,
        kind,
        "" if value is None else value,
        placeholder,
        join(extra),
        html('<datalist id="{}">{}</datalist>', listed, offered) if known else "",
    )


def area(name: str, label: str, value: str = "", placeholder: str = "") -> Markup:
    """Several lines to fill in."""
    return html(
        '<label class="whole">{}<textarea name="{}" rows="4" spellcheck="false" placeholder="{}">{}'
        "</textarea></label>",
        label,
        name,
        placeholder,
        value,
    )


def check(name: str, label: str, on: bool = False) -> Markup:
    return html(
        '<label class="check"><input type="checkbox" name="{}"{}> {}</label>',
        name,
        CHECKED if on else "",
        label,
    )


def form(act: str, arg: object, fields: Any, yes: str, *, upload: str = "") -> Markup:
    """A form in a sheet; what is wrong with it is told in it. `upload`: where its file is sent to."""
    return html(
        '<form class="fields" data-act="{}" data-arg="{}"{}>{}<p class="error told whole" role="alert"></p>'
        '<div class="acts whole"><button type="button" class="btn" data-do="close">Back</button>'
        '<button class="btn main">{}</button></div></form>',
        act,
        arg,
        html(' data-upload="{}"', upload) if upload else "",
        fields,
        yes,
    )


def text(values: Mapping[str, str], name: str) -> str | None:
    """What was typed; None for nothing."""
    return values.get(name, "").strip() or None


def figure(values: Mapping[str, str], name: str) -> int | None:
    """A whole number; None for nothing."""
    typed = text(values, name)
    if typed is None:
        return None
    if not (typed.isascii() and typed.isdigit()):
        raise UsageError(f"{name.replace('_', ' ')} is a whole number, not {typed!r}")
    return int(typed)


def document_of(values: Mapping[str, str], name: str) -> dict[str, Any] | None:
    """A JSON object; None for nothing."""
    typed = text(values, name)
    if typed is None:
        return None
    try:
        value = orjson.loads(typed)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be a JSON object", hint='for example {"days": 7}')
    return value
