"""The pages of the journal: mood over time, themes, insights, search, import and analysis."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path, PurePath
from typing import Any

from starlette.datastructures import UploadFile

from shiftboss.extensions.admin.page.charts import ChartLine, chart
from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import ActResult, Context, Page, Visit, answered
from shiftboss.extensions.admin.page.words import count
from shiftboss.extensions.ai.engines import engine_of
from shiftboss.extensions.journal.commands import Imported, search, show
from shiftboss.extensions.journal.operations import JournalOperations
from shiftboss.extensions.journal.pipeline import STEPS
from shiftboss.extensions.journal.reading import READERS, Problem
from shiftboss.extensions.journal.rows import Hit
from shiftboss.extensions.journal.store import Journal
from shiftboss.model.errors import NotFound, UsageError

SHOWN = 40
HIDDEN = ("embedding_generation", "schema_inference")  # much data, little to read
BUCKETS = ("week", "month")
KINDS = (("person", "People"), ("place", "Places"), ("concept", "Themes"))
TOLD = 20  # bad lines


async def view(visit: Visit) -> Context:
    db = visit.admin.db
    writers = await db.family(Journal).status()
    users = [row["user_id"] for row in writers]
    asked = visit.wanted("user")
    if asked and asked not in users:
        raise NotFound(f"there is no journal of {asked!r}", hint=f"known writers: {', '.join(users)}")

    async def find(question: str) -> list[Hit]:
        return await search(db, await engine_of(db, visit.admin.settings), question, user=asked)

    bucket = "week" if visit.wanted("by") == "week" else "month"
    found = await _findings(visit, asked or users[0], bucket) if users else {"user": None}
    return {"writers": writers, "users": users, "asked": asked, **found, **await answered(visit, find)}


async def _findings(visit: Visit, user: str, bucket: str) -> Context:
    journal = visit.admin.db.family(Journal)
    entries, entities = await journal.entries(user, SHOWN), await journal.entities(user, 60)
    return {
        "user": user,
        "bucket": bucket,
        "buckets": BUCKETS,
        "mood": _mood(await journal.mood(user, bucket), bucket),
        "themes": _themes(entries, entities),
        "insights": (await journal.insights(user))[:12],
        "entries": entries,
    }


def _mood(rows: list[Any], bucket: str) -> Context | None:
    if not rows:
        return None
    pattern = "%d %b %Y" if bucket == "week" else "%b %Y"
    names = (("mood", "s1"), ("lowest", "s2"), ("highest", "s3"))
    lines = [ChartLine(name, [round(row[name], 3) for row in rows], tone) for name, tone in names]
    labels = [row["period"].strftime(pattern) for row in rows]
    return chart(lines, labels, title="Mood over time, from -1 to 1", low=-1.0)


def _themes(entries: list[Any], entities: list[Any]) -> list[Context]:
    """Return the names that are mentioned most, by kind."""
    recent = Counter(theme for entry in entries for theme in entry["themes"] or ()).most_common(10)
    found: list[Context] = [{"title": "Recent themes", "names": recent}] if recent else []
    for kind, title in KINDS:
        if names := [(one["name"], one["mentions"]) for one in entities if one["kind"] == kind][:10]:
            found.append({"title": title, "names": names})
    return found


async def view_entry(visit: Visit) -> Context:
    found = await show(visit.admin.db, visit.params["id"])
    results = {name: one for name, one in found["results"].items() if name not in HIDDEN}
    return {"entry": found, "results": results, "id": visit.params["id"]}


async def _ask_import(visit: Visit, arg: str) -> Context:
    users = [row["user_id"] for row in await visit.admin.db.family(Journal).status()]
    return {"users": users, "kinds": ",".join(READERS)}


async def _import(visit: Visit, form: Form) -> ActResult:
    visit.who.require(PAGES[0].acting)
    upload = form.file("file")
    if upload is None:
        raise UsageError("no file was chosen", hint="choose a JSON Lines, CSV, text or Markdown file")
    with tempfile.TemporaryDirectory(prefix="shiftboss-import-") as folder:
        file = _keep(upload, Path(folder))
        done = await visit.admin.use(JournalOperations).import_journal(visit.who, [file], form.text("user"))
    problems = "\n".join(map(_problem, done.problems[:TOLD]))
    return ActResult(f"{_told(done)}\n{problems}".strip(), bad=bool(problems))


def _keep(upload: UploadFile, folder: Path) -> Path:
    file = folder / (PurePath(upload.filename or "").name or "file")
    with file.open("wb") as kept:
        shutil.copyfileobj(upload.file, kept)
    return file


def _told(done: Imported) -> str:
    counts = ", ".join(f"{done.outcomes[name]} {name}" for name in ("new", "changed", "same"))
    return f"{counts}, {len(done.problems)} bad; {count(len(done.tasks), 'task')} enqueued"


def _problem(one: Problem) -> str:
    hint = f" ({one.hint})" if one.hint else ""
    return f"{Path(one.path).name}:{one.line}: {one.message}{hint}"


async def _ask_analyse(visit: Visit, arg: str) -> Context:
    return {"steps": {step: step.replace("_", " ") for step in STEPS}}


async def _process(visit: Visit, form: Form) -> str:
    again = [step] if (step := form.text("again")) else []
    made = await visit.admin.use(JournalOperations).process_journal(visit.who, form.arg or None, again)
    return f"{count(len(made), 'task')} enqueued" if made else "All entries are analysed"


async def _delete(visit: Visit, form: Form) -> str:
    made = await visit.admin.use(JournalOperations).delete_entry(visit.who, form.arg)
    return f"The entry is deleted; {count(len(made), 'task')} enqueued to update the findings"


async def _erase(visit: Visit, form: Form) -> str:
    gone = await visit.admin.use(JournalOperations).erase_journal(visit.who, form.arg)
    return f"The journal of {form.arg} is erased: {count(gone, 'entry', 'entries')}"


TEMPLATES = Path(__file__).parent / "templates"
PAGES = (
    Page(
        templates=TEMPLATES,
        path="/journal",
        title="Journal",
        label="Journal",
        icon="M6 3h11a2 2 0 0 1 2 2v16H7a2 2 0 0 1-2-2V4a1 1 0 0 1 1-1zM9 8h6M9 12h6",
        order=70,
        template="journal.html",
        view=view,
        every=10.0,
        acts={"process": _process, "import": _import, "delete": _delete, "erase": _erase},
        sheets={"import": _ask_import, "analyse": _ask_analyse},
    ),
    Page(
        templates=TEMPLATES,
        path="/journal/{id:path}",
        title="Journal entry",
        template="journal_entry.html",
        view=view_entry,
        every=30.0,
    ),
)
