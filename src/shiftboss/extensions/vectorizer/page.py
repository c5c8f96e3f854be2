"""The pages of vectorizers: progress, errors, settings and search."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import Act, Context, Page, Visit, answered
from shiftboss.extensions.admin.page.words import count
from shiftboss.extensions.ai.engines import engine_of
from shiftboss.extensions.vectorizer.operations import VectorizerOperations
from shiftboss.extensions.vectorizer.options import conditions
from shiftboss.extensions.vectorizer.search import Mode
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.model.errors import NotFound, UsageError

DISTANCES = ("cosine", "l2", "ip", "l1")
CHOICES: Context = {
    "chunkings": {
        "sentences": "sentences", "markdown": "Markdown headings", "separators": "separators",
        "tokens": "tokens", "characters": "characters", "none": "none: whole rows",
    },
    "indexes": {"hnsw": "HNSW", "ivfflat": "IVFFlat", "none": "none"},
    "opclasses": [f"{kind}_{distance}_ops" for kind in ("vector", "halfvec") for distance in DISTANCES],
    "providers": ("local", "openai", "azure", "ollama"),
}  # fmt: skip
MODES = {"vector": "meaning", "hybrid": "meaning and words", "text": "words"}
OPTIONS = ("m", "ef_construction", "lists")
FIGURES = ("chunk_size", "chunk_overlap", "dimensions", "batch_size", "concurrency", "index_min_rows")
WORDS = (
    "template", "chunking", "provider", "model", "base_url", "api_key_name", "index_method", "index_opclass",
    "text_search", "schedule",
)  # fmt: skip
LISTS = ("columns", "separators")
SETTINGS = (*LISTS, *WORDS, *FIGURES, "index_options")
TOGETHER = (
    ("columns", "template"), ("provider", "model"), ("chunk_size", "chunk_overlap"),
    ("index_method", "index_options"),
)  # fmt: skip
FOUND = 20


async def view(visit: Visit) -> Context:
    from shiftboss.extensions.vectorizer.search import search

    db = visit.admin.db
    rows = await db.family(Vectorizers).status()
    names = [row["name"] for row in rows]
    which = visit.wanted("in") or (names[0] if names else "")
    asked = visit.wanted("mode") or "vector"
    mode: Mode = cast(Mode, asked) if asked in MODES else "vector"

    async def find(question: str) -> list[dict[str, Any]]:
        wanted = _conditions(visit.wanted("filter"))
        engine = await engine_of(db, visit.admin.settings)
        return await search(db, engine, which, question, FOUND, mode=mode, filter=wanted)

    found = await answered(visit, find)
    return {
        "rows": rows,
        "errors": await db.family(Vectorizers).errors(limit=50),
        "names": names,
        "which": which,
        "modes": MODES,
        "mode": mode,
        "filter": visit.wanted("filter"),
        **found,
    }


async def view_one(visit: Visit) -> Context:
    id, db = _id(visit.params["id"]), visit.admin.db
    settings = await db.family(Vectorizers).settings(id)
    (status,) = await db.family(Vectorizers).status(id)
    return {"row": status, "settings": settings, "errors": await db.family(Vectorizers).errors(id, 50)}


def _conditions(text: str | None) -> dict[str, Any] | None:
    """Parse a filter: either `lang=en, hits>=5` or the JSON of the API."""
    if text is None:
        return None
    if text.startswith("{"):
        return Form([("filter", text)]).document("filter")
    return conditions([part.strip() for part in text.split(",") if part.strip()])


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise NotFound(f"there is no vectorizer {text!r}", hint="choose one from the list of vectorizers")
    return int(text)


def _of(command: str, message: str) -> Act:
    async def act(visit: Visit, form: Form) -> str:
        await getattr(visit.admin.use(VectorizerOperations), command)(visit.who, _id(form.arg))
        return message

    return act


async def _ask_create(visit: Visit, arg: str) -> Context:
    row: Context = dict.fromkeys(SETTINGS) | {
        "chunking": "sentences",
        "provider": "local",
        "index_options": {},
    }
    return {"tables": await visit.admin.db.family(Vectorizers).sources(), "row": row, **CHOICES}


async def _create(visit: Visit, form: Form) -> str:
    options = _settings(form) | {"enqueue_existing": form.flag("existing")}
    if name := form.text("name"):
        options["name"] = name
    source = form.text("source") or ""
    id = await visit.admin.use(VectorizerOperations).create_vectorizer(visit.who, source, options)
    row = (await visit.admin.db.family(Vectorizers).status(id))[0]
    return f"{row['name']} is created for {source}; {count(row['pending'], 'row')} to embed"


def _settings(form: Form) -> dict[str, Any]:
    """Return the settings that were filled in; empty fields keep their default."""
    columns = [word.strip() for word in (form.text("columns") or "").split(",") if word.strip()]
    separators = [line for line in (form.text("separators") or "").splitlines() if line]
    given: dict[str, Any] = {
        "columns": columns or None,
        "separators": list(map(_unescaped, separators)) or None,
    }
    given |= {name: form.text(name) for name in WORDS} | {name: form.figure(name) for name in FIGURES}
    options = {name: value for name in OPTIONS if (value := form.figure(name)) is not None}
    given["index_options"] = options or None
    return {name: value for name, value in given.items() if value is not None}


def _unescaped(line: str) -> str:
    """Return a separator in which `\\n` stands for a new line and `\\t` for a tab."""
    return line.replace("\\n", "\n").replace("\\t", "\t")


async def _ask_update(visit: Visit, arg: str) -> Context:
    return {"row": await visit.admin.db.family(Vectorizers).settings(_id(arg)), **CHOICES}


async def _update(visit: Visit, form: Form) -> str:
    id = _id(form.arg)
    row = await visit.admin.db.family(Vectorizers).settings(id)
    changed = _changed(row, _settings(form))
    if not changed:
        raise UsageError("no setting was changed", hint="edit a field, or press Cancel")
    works = await visit.admin.use(VectorizerOperations).update_vectorizer(visit.who, id, changed)
    if works == id:
        return "The settings are saved"
    return "Embedding again in the background; searches use the old vectors until then"


def _changed(row: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the changed settings, and all settings of a group if one of them changed."""
    names = {name for name in (*given, "template") if _other(row[name], given.get(name))}
    names |= {name for group in TOGETHER if names & set(group) for name in group}
    return {name: given[name] for name in names if name in given}


def _other(now: Any, given: Any) -> bool:
    return bool((str(now) if isinstance(given, str) else now) != given)


async def _ask_drop(visit: Visit, arg: str) -> Context:
    return {"row": await visit.admin.db.family(Vectorizers).settings(_id(arg))}


async def _drop(visit: Visit, form: Form) -> str:
    everything = form.flag("everything")
    await visit.admin.use(VectorizerOperations).drop_vectorizer(visit.who, _id(form.arg), everything)
    return (
        "The vectorizer and its vectors are dropped"
        if everything
        else "The vectorizer is dropped; its vectors remain"
    )


ACTS: dict[str, Act] = {
    "pause": _of("pause_vectorizer", "The vectorizer is paused; changes are queued"),
    "resume": _of("resume_vectorizer", "The vectorizer is resumed"),
    "retry": _of("retry_vectorizer", "The failed rows are queued again"),
    "drop": _drop,
}

TEMPLATES = Path(__file__).parent / "templates"
PAGES = (
    Page(
        templates=TEMPLATES,
        path="/vectorizers",
        title="Vectorizers",
        label="Vectorizers",
        icon="M5 19L19 5M19 5h-6M19 5v6M5 5l5 5M14 14l5 5",
        order=80,
        template="vectorizers.html",
        view=view,
        acts=ACTS | {"create": _create},
        sheets={"create": _ask_create, "drop": _ask_drop},
    ),
    Page(
        templates=TEMPLATES,
        path="/vectorizers/{id}",
        title="Vectorizer",
        template="vectorizer.html",
        view=view_one,
        acts=ACTS | {"update": _update},
        sheets={"update": _ask_update, "drop": _ask_drop},
    ),
)
