"""Parts of pages: texts, charts, forms, and the registry of pages; without a browser."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shiftboss.extensions.admin.page.charts import ChartLine, chart, clock, figure, round_up, spark
from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.mount import built_in
from shiftboss.extensions.admin.page.render import Renderer
from shiftboss.extensions.admin.page.schemas import as_object, from_object, schema_fields, schema_values
from shiftboss.extensions.admin.page.site import Page, Site, Visit
from shiftboss.extensions.admin.page.words import age, count, moment, short, snippet, span, tone, word
from shiftboss.extensions.bots.page import ACTIVE, IDLE, pace
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import UsageError

EVIL = "<script>alert('x')</script>\""
VIEWER = Visit(None, Principal("ann", Role.VIEWER))  # type: ignore[arg-type]


async def nothing(visit: Visit) -> dict[str, Any]:
    return {"name": EVIL}


def test_a_package_adds_a_page_with_templates_of_its_own(tmp_path: Path) -> None:
    template = (
        "{% block title %}{{ name }}{% endblock %}{% block list %}<p>{{ name }}</p>{% endblock %}"
        "{% block still_form %}once{% endblock %}{% block sheet_ask %}asked{% endblock %}"
    )
    (tmp_path / "own.html").write_text(template)
    page = Page(path="/own", title="Own", label="Own", template="own.html", view=nothing, templates=tmp_path)
    site = built_in()
    site.add(page)
    renderer = Renderer(site)
    text = renderer.whole(page, VIEWER, {"name": EVIL}, theme=None)
    assert "<script>alert" not in text
    assert 'href="/own" aria-current="page"' in text
    assert 'data-piece="list"' in text
    assert 'data-piece="still_form"' not in text
    assert "asked" not in text
    assert [piece.name for piece in renderer.pieces(page, VIEWER, {"name": EVIL})] == ["list"]
    assert renderer.sheet(page, VIEWER, "ask", {"name": EVIL}) == "asked"
    with pytest.raises(ValueError, match="two pages"):
        site.add(page)


def test_the_navigation_shows_what_a_visitor_may_open() -> None:
    site = built_in()
    labels = [page.label for page in site.navigation(VIEWER.who)]
    assert labels[:4] == ["Overview", "Tasks", "Approvals", "Workers"]
    assert "Access" not in labels
    assert "Access" in [page.label for page in site.navigation(Principal("bob", Role.ADMIN))]
    assert [site.section(page) for page in site if page.path == "/tasks/{id}"] == ["/tasks"]
    assert list(Site()) == []


def test_a_form_has_a_field_for_every_parameter_and_gives_the_values_back() -> None:
    from tests.extensions.page.survey import (
        SurveyParams,  # brings a bot along: not before other tests are done
    )

    schema = SurveyParams.model_json_schema()
    assert [field["name"] for field in schema_fields(schema)] == list(SurveyParams.model_fields)
    given = schema_values(Form({"steps": "7", "pause": "0.5", "depth": "thorough"}.items()), schema)
    assert SurveyParams(**given) == SurveyParams(steps=7, pause=0.5, depth="thorough", dry=False)
    assert schema_values(Form({"steps": "", "dry": "on"}.items()), schema) == {"dry": True}
    with pytest.raises(UsageError, match="steps"):
        schema_values(Form({"steps": "many"}.items()), schema)


def test_a_form_asks_for_what_no_plain_field_can_hold_as_json() -> None:
    schema = {
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "size": {"enum": [1, 2.5, "large", None]},
            "who": {"$ref": "#/$defs/Who"},
            "act": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "loop": {"$ref": "#/$defs/Loop"},
        },
        "required": ["tags"],
        "$defs": {"Who": {"type": "object", "title": "Somebody"}, "Loop": {"$ref": "#/$defs/Loop"}},
    }
    fields = {field["key"]: field for field in schema_fields(schema, {"tags": ["a"]}, "arg.")}
    assert {key: field["kind"] for key, field in fields.items()} == {
        "tags": "json", "size": "choice", "who": "json", "act": "string", "loop": "json",
    }  # fmt: skip
    assert (fields["tags"]["default"], fields["who"]["label"]) == ('["a"]', "Somebody")
    typed = {"arg.tags": '["b"]', "arg.size": "2.5", "arg.who": '{"n": 1}', "arg.act": "go", "act": "create"}
    values = schema_values(Form(typed.items()), schema, "arg.")
    assert values == {"tags": ["b"], "size": 2.5, "who": {"n": 1}, "act": "go"}


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        (None, '{"a": [1]}', {"a": [1]}),
        ({"type": "boolean"}, "false", False),
        ({"type": "boolean"}, "true", True),
        ({"type": "string"}, "12", "12"),
        ({"enum": ["yes", "no"]}, "no", "no"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "3", 3),
    ],
)
def test_a_form_asks_for_a_value_that_is_no_object(schema: Any, typed: str, value: Any) -> None:
    (field,) = schema_fields(as_object(schema), prefix="answer.")
    given = schema_values(Form([(field["name"], typed)]), as_object(schema), "answer.")
    assert from_object(schema, given) == value


def test_a_form_knows_its_action_and_its_values() -> None:
    form = Form([("act", "limit queue mail"), ("id", "1"), ("id", "2"), ("n", "-3"), ("d", "[]"), ("x", " ")])
    assert (form.act, form.arg, form.all("id"), form.text("x")) == ("limit", "queue mail", ["1", "2"], None)
    for read in (lambda: form.figure("n"), lambda: form.document("d"), lambda: form.amount("n")):
        with pytest.raises(UsageError):
            read()


def test_runs_are_read_often_only_while_one_is_active() -> None:
    assert pace({"active": [{"status": "pending"}]}) == ACTIVE == 5.0
    assert pace({"active": []}) == IDLE == 60.0


def test_words() -> None:
    assert [span(n) for n in (0.2, 75, 90_000, None)] == ["200 ms", "1 min 15 s", "1 d 1 h", "–"]
    assert [age(n) for n in (3, 47, 700)] == ["under 10 s", "40 s", "11 min"]
    assert (count(1, "task"), count(2, "task"), count(1200, "entry", "entries")) == (
        "1 task",
        "2 tasks",
        "1,200 entries",
    )
    assert (word("In Progress"), word("finished"), tone("Complete"), tone("odd")) == (
        "running",
        "complete",
        "good",
        "plain",
    )
    assert snippet("one two three", 8) == "one two …"
    assert snippet("one\n two", 80) == "one two"
    at = moment(datetime(2030, 1, 31, 12, 0, tzinfo=UTC))
    assert at == {"iso": "2030-01-31T12:00:00Z", "text": "2030-01-31 12:00:00 UTC"}


def test_the_start_of_an_id_is_unique_among_those_shown() -> None:
    made = [f"0189abcd-1234-7{rest}" for rest in ("aaa-8bbb-1", "aaa-8ccc-2", "bbb-8bbb-3")]
    ids = [UUID(f"{id}{'0' * 11}") for id in made]
    assert [short(id) for id in ids] == ["0189abcd-1234-7aaa", "0189abcd-1234-7aaa", "0189abcd-1234-7bbb"]
    assert [short(id, ids) for id in ids] == [
        "0189abcd-1234-7aaa-8bbb",
        "0189abcd-1234-7aaa-8ccc",
        "0189abcd-1234-7bbb",
    ]
    twins = [UUID(int=ids[0].int + 1), ids[0]]
    assert [short(id, twins) for id in twins] == [str(id) for id in twins]


def test_a_chart_bears_gaps_nothing_and_a_single_point() -> None:
    gap = chart([ChartLine("a", [1.0, None, 3.0, 2.0])], ["w", "x", "y", "z"], title="t")
    assert len(gap["lines"]) == 2, "a gap parts the line"
    assert gap["spots"][1]["tip"] == "x\na: –"
    single = chart([ChartLine("a", [None, 2.0])], ["x", "y"], title="t")
    assert len(single["lines"][0]["points"].split()) == 2, "a single point is a stroke"
    (start, end) = (float(point.split(",")[0]) for point in single["lines"][0]["points"].split())
    assert (end - start, end) == (300, 600), "it is not cut at the edge"
    none = chart([ChartLine("a", [])], [], title="t")
    assert (none["lines"], none["nothing"]) == ([], "No data in this period")
    assert chart([ChartLine("a", [0, 0])], ["x", "y"], title="t")["lines"] == []
    assert spark([], "t")["points"] == ""


def test_axes_have_round_figures() -> None:
    assert [round_up(n) for n in (0, 0.004, 0.3, 1, 7, 61, 950)] == [1, 0.004, 0.3, 1, 8, 80, 1000]
    noon = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)
    assert clock([noon], "%H:%M") == ["12:00"]
    assert [figure(value) for value in (30000.0, 0.5, -0.2921, 12.0)] == ["30,000", "0.5", "-0.2921", "12"]
