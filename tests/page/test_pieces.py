"""The pieces that pages are made of: pure functions, no browser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from shiftboss.admin.page import tasks
from shiftboss.admin.page.events import timeline
from shiftboss.admin.page.markup import button, link, span, table, when
from shiftboss.admin.page.params import fields, values_of
from shiftboss.admin.page.runs import ACTIVE, IDLE, pace
from shiftboss.admin.page.svg import Line, chart
from shiftboss.model.errors import UsageError

EVIL = "<script>alert('x')</script>\""


def test_whatever_comes_from_outside_is_escaped() -> None:
    event = {"id": 1, "at": datetime.now(UTC), "kind": EVIL, "worker_id": EVIL, "component": EVIL,
             "task_id": None, "details": {EVIL: EVIL}}  # fmt: skip
    for made in (
        timeline([event]),
        table(["a"], [[EVIL]], caption=EVIL, keys=[EVIL]),
        button(EVIL, EVIL, EVIL, confirm=EVIL),
        link("/tasks/{}", EVIL, EVIL),
        chart([Line(EVIL, [1.0])], [EVIL], title=EVIL),
    ):
        assert "<script" not in made
        assert "x')</script>\"" not in made


def test_payloads_can_be_hidden() -> None:
    task: dict[str, Any] = dict.fromkeys(
        ("worker_id", "error_message", "wait_reason", "progress", "progress_message", "started_at")
    )
    task |= {"id": uuid4(), "status": "Failed", "task_type": "t", "queue": "q", "params_preview": "secret",
             "attempts": 1, "max_attempts": 1, "created_at": datetime.now(UTC), "cancelling": False}  # fmt: skip
    seen: dict[str, Any] = {"items": [task], "next": None, "base": {}, "first": True}
    assert "secret" in tasks._list(seen | {"hide": False}, False)
    hidden = tasks._list(seen | {"hide": True}, False)
    assert "secret" not in hidden
    assert "(hidden)" in hidden


def test_who_may_not_act_can_press_nothing() -> None:
    assert button("Retry", "retry-task", 1, may=False) == ""
    heads = ("Task", "#Action")
    assert "Action" not in table(heads, [("a", button("Retry", "retry-task", 1, may=False))], caption="c")
    assert "Action" in table(heads, [("a", button("Retry", "retry-task", 1, may=True))], caption="c")


def test_a_form_has_a_field_for_every_parameter_and_gives_the_values_back() -> None:
    from tests.page.survey import SurveyParams  # brings a bot along: not before other tests are done

    schema = SurveyParams.model_json_schema()
    form = fields(schema)
    for name in SurveyParams.model_fields:
        assert f'name="{name}"' in form
    given = values_of(schema, {"steps": "7", "pause": "0.5", "depth": "thorough"})
    assert SurveyParams(**given) == SurveyParams(steps=7, pause=0.5, depth="thorough", dry=False)
    assert values_of(schema, {"steps": "", "dry": "on"}) == {"dry": True}
    with pytest.raises(UsageError, match="steps"):
        values_of(schema, {"steps": "many"})


def test_runs_are_read_often_only_while_one_is_under_way() -> None:
    assert pace({"active": [{"status": "pending"}]}) == ACTIVE == 5.0
    assert pace({"active": []}) == IDLE == 60.0


def test_times_and_lengths_in_words() -> None:
    assert span(0.2) == "200 ms"
    assert span(75) == "1 min 15 s"
    assert span(90_000) == "1 d 1 h"
    moment = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)
    assert 'title="2030-01-31 12:00:00 UTC"' in when(moment)


def test_a_chart_bears_gaps_nothing_and_a_single_point() -> None:
    assert "polyline" in chart([Line("a", [1.0, None, 3.0])], ["x", "y", "z"], title="t")
    assert "circle" in chart([Line("a", [None, 2.0])], ["x", "y"], title="t")
    assert "nothing yet" in chart([Line("a", [])], [], title="t")
