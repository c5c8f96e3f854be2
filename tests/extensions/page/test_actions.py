"""Click through the actions of every page and check their effect in the database."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from playwright.sync_api import Locator, Page, expect

from shiftboss.model.task import NewTask
from tests.extensions.page.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
Open = Callable[..., Page]


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row", name=re.compile(rf"^{re.escape(name)}\b"))


def press(within: Page | Locator, name: str) -> None:
    within.get_by_role("button", name=name, exact=True).click()


def sure(page: Page, name: str) -> None:
    """Confirm the dialog before an action."""
    press(page.locator("#ask"), f"Yes, {name.lower()}")


def fill(page: Page, **values: str) -> Locator:
    sheet = page.locator("#sheet")
    for name, value in values.items():
        field = sheet.locator(f"[name={name}]")
        field.select_option(value) if field.evaluate("f => f.nodeName") == "SELECT" else field.fill(value)
    return sheet


def told(page: Page, text: str) -> None:
    expect(page.get_by_role("status")).to_contain_text(text)
    expect(page.locator("#sheet[open]")).to_have_count(0)


def one(stage: Stage, sql: str, *params: Any) -> Any:
    """Return the first column of the first row."""
    found = stage.ask(lambda db: db.fetch_one(sql, list(params)))
    return next(iter(found.values())) if found else None


def test_queues_and_types_are_paused_with_a_reason_limited_and_resumed(stage: Stage, open_as: Open) -> None:
    tasks = [NewTask(task_type="stamp", queue="letters", params={"n": n}) for n in range(3)]
    stage.ask(lambda db: db.tasks.enqueue(tasks))
    page = open_as("operator", "/queues")
    press(row(page, "letters"), "Pause")
    press(fill(page, reason="no ink"), "Pause")
    told(page, "letters is paused")
    expect(row(page, "letters")).to_contain_text("paused no ink")
    assert one(stage, "SELECT reason FROM shiftboss.pauses WHERE name = 'letters'") == "no ink"

    press(row(page, "letters"), "Limits")
    press(fill(page, max_running="-2"), "Set")
    expect(page.locator("#sheet .told")).to_contain_text(
        "Max running must be a whole number, not '-2'", ignore_case=True
    )
    assert one(stage, "SELECT 1 FROM shiftboss.limits WHERE name = 'letters'") is None
    press(fill(page, max_running="2", rate="30", seconds="10"), "Set")
    told(page, "The limits of letters are set")
    expect(row(page, "letters")).to_contain_text("2 at a time, 30 per 10 s")
    press(row(page, "letters"), "Resume")
    told(page, "letters is resumed")
    assert one(stage, "SELECT 1 FROM shiftboss.pauses WHERE name = 'letters'") is None

    press(row(page, "stamp"), "Limits")
    press(fill(page, max_per_key="1"), "Set")
    told(page, "The limits of stamp are set")
    assert (
        one(stage, "SELECT max_per_key FROM shiftboss.limits WHERE kind = 'task_type' AND name = 'stamp'")
        == 1
    )
    press(row(page, "stamp"), "Pause")
    press(page.locator("#sheet"), "Pause")
    told(page, "stamp is paused")
    assert one(stage, "SELECT kind FROM shiftboss.pauses WHERE name = 'stamp'") == "task_type"


def test_tenants_get_weights_rates_are_for_each_and_priorities_age(stage: Stage, open_as: Open) -> None:
    tasks = [NewTask(task_type="stamp", queue="parcels", tenant=name) for name in ("acme", "zeta")]
    stage.ask(lambda db: db.tasks.enqueue(tasks))
    page = open_as("operator", "/queues")
    press(row(page, "acme"), "Set weight")
    press(fill(page, weight="2.5"), "Set")
    told(page, "acme has weight 2.5")
    expect(row(page, "acme")).to_contain_text("2.5manually")
    press(page, "Set tenant weight")
    press(fill(page, name="newcomer", weight="3"), "Set")
    told(page, "newcomer has weight 3")
    weight = "SELECT weight::float8 FROM shiftboss.tenants WHERE name = %s"
    assert (one(stage, weight, "acme"), one(stage, weight, "newcomer")) == (2.5, 3.0)
    press(row(page, "acme"), "Reset")
    told(page, "acme has weight 1")
    assert one(stage, weight, "acme") is None

    press(row(page, "parcels"), "Limits")
    press(fill(page, rate="5", rate_per="tenant"), "Set")
    told(page, "The limits of parcels are set")
    expect(row(page, "parcels")).to_contain_text("5 per min for each tenant")
    press(row(page, "parcels"), "Limits")
    press(fill(page, rate="6"), "Set")  # the rest of the limit stays as it is
    told(page, "The limits of parcels are set")
    assert one(stage, "SELECT rate_per FROM shiftboss.limits WHERE name = 'parcels'") == "tenant"

    press(page, "Set ageing")
    press(fill(page, minutes="10"), "Set")
    told(page, "Priority ageing is on")
    assert one(stage, "SELECT shiftboss.ageing() = interval '10 minutes'") is True
    press(page, "Set ageing")
    press(fill(page, minutes=""), "Set")
    told(page, "Priority ageing is off")


def test_limits_of_the_code_hold_again_when_an_operator_says_so(stage: Stage, open_as: Open) -> None:
    code = [{"name": "engrave", "max_running": 4}]
    stage.ask(lambda db: db.fetch("SELECT shiftboss.declare_limits(%s)", [orjson.dumps(code).decode()]))
    page = open_as("operator", "/queues")
    expect(row(page, "engrave")).to_contain_text("4 at a time (in code)")
    press(row(page, "engrave"), "Limits")
    press(fill(page, max_running="1"), "Set")
    expect(row(page, "engrave")).to_contain_text("1 at a time (overrides the code)")
    press(row(page, "engrave"), "Use limits from code")
    told(page, "engrave uses the limits from code")
    expect(row(page, "engrave")).to_contain_text("4 at a time (in code)")


def test_a_schedule_is_added_changed_run_paused_and_removed(stage: Stage, open_as: Open) -> None:
    page = open_as("operator", "/schedules")
    press(page, "Add schedule")
    press(fill(page, name="nightly", task_type="resize", cron="at noon", params='{"image": 7}'), "Add")
    expect(page.locator("#sheet .told")).to_contain_text(
        "'at noon' is not a cron expression", ignore_case=True
    )
    assert one(stage, "SELECT 1 FROM shiftboss.schedules WHERE name = 'nightly'") is None
    filled = {"cron": "0 3 * * *", "timezone": "Europe/Madrid", "missed": "skip", "priority": "9"}
    filled |= {"queue": "night", "tenant": "acme", "requires": '{"memory_gb": 1}'}
    press(fill(page, **filled), "Add")
    told(page, "nightly is saved. Next run:")
    made = stage.ask(lambda db: db.schedules.get("nightly"))
    assert made is not None
    assert (made["cron"], made["timezone"], made["missed"]) == ("0 3 * * *", "Europe/Madrid", "skip")
    task = {"task_type": "resize", "params": {"image": 7}, "priority": 9, "queue": "night", "tenant": "acme"}
    assert made["task"] == task | {"requires": {"memory_gb": 1}}

    press(row(page, "nightly"), "Edit")
    expect(page.locator("#sheet [name=name]")).not_to_be_editable()
    press(fill(page, cron="30 4 * * *", requires="", queue=""), "Save")
    told(page, "nightly is saved")
    expect(row(page, "nightly")).to_contain_text("30 4 * * *")
    changed = stage.ask(lambda db: db.schedules.get("nightly"))
    assert changed is not None
    assert changed["task"] == {name: value for name, value in task.items() if name != "queue"}

    press(row(page, "nightly"), "Pause")
    sure(page, "Pause")
    told(page, "nightly is paused")
    press(row(page, "nightly"), "Run now")
    sure(page, "Run now")
    told(page, "nightly is enqueued")
    after = stage.ask(lambda db: db.schedules.get("nightly"))
    assert after is not None
    assert after["paused"]
    assert one(stage, "SELECT tenant FROM tasks WHERE metadata ->> 'schedule' = 'nightly'") == "acme"
    press(row(page, "nightly"), "Resume")
    told(page, "nightly is resumed")
    press(row(page, "nightly"), "Remove")
    sure(page, "Remove")
    expect(row(page, "nightly")).to_have_count(0)
    assert one(stage, "SELECT 1 FROM shiftboss.schedules WHERE name = 'nightly'") is None


def test_a_vectorizer_is_created_searched_changed_and_dropped(stage: Stage, open_as: Open) -> None:
    async def seed(db: Any) -> None:
        await db.execute("CREATE TABLE recipes (id serial PRIMARY KEY, title text, body text)")
        await db.execute("INSERT INTO recipes (title, body) VALUES ('Bread', 'Flour, water, salt and time')")

    stage.ask(seed)
    page = open_as("operator", "/vectorizers")
    press(page, "Create vectorizer")
    press(fill(page, source="nowhere", columns="body"), "Create")
    expect(page.locator("#sheet .told")).to_contain_text(
        'relation "nowhere" does not exist', ignore_case=True
    )
    press(fill(page, source="recipes", columns="title, body", chunk_size="400"), "Create")
    told(page, "recipes_embedding is created for recipes; 1 row to embed")
    found = stage.ask(lambda db: db.vectorizers.settings("recipes_embedding"))
    assert (found["columns"], found["chunk_size"], found["provider"]) == (["title", "body"], 400, "local")
    expect(row(page, "recipes_embedding")).to_contain_text("idle", timeout=60_000)

    page.reload()
    page.get_by_label("Search for").fill("something to bake")
    press(page, "Search")
    expect(page.locator(".hit")).to_contain_text("Flour")
    expect(page.locator(".hit")).to_contain_text("distance 0.")
    for mode, words, found in (("text", "bake", 0), ("text", "water", 1), ("hybrid", "water", 1)):
        page.locator("select[name=mode]").select_option(mode)
        page.get_by_label("Search for").fill(words)
        press(page, "Search")
        expect(page.locator(".hit")).to_have_count(found)
    for filter, found in (("title=Bread", 1), ("title=Soup", 0), ('{"id": {">=": 1}}', 1)):
        page.get_by_label("Where").fill(filter)
        press(page, "Search")
        expect(page.locator(".hit")).to_have_count(found)
    page.get_by_label("Where").fill("nothing=1")
    press(page, "Search")
    expect(page.locator("main")).to_contain_text('has no column "nothing"')

    page.get_by_role("link", name="recipes_embedding").click()
    press(page, "Edit")
    press(fill(page, batch_size="10", index_method="ivfflat", lists="7", m="", index_min_rows="1"), "Save")
    told(page, "The settings are saved")
    set = stage.ask(lambda db: db.vectorizers.settings("recipes_embedding"))
    assert (set["index_method"], set["index_options"], set["index_min_rows"]) == ("ivfflat", {"lists": 7}, 1)
    expect(page.get_by_text("ivfflat · vector_cosine_ops · lists 7")).to_be_visible()
    press(page, "Edit")
    press(fill(page, columns="", template="$title"), "Save")
    told(page, "Embedding again in the background")
    expect(page.get_by_text("$title")).to_be_visible(timeout=60_000)
    changed = stage.ask(lambda db: db.vectorizers.settings("recipes_embedding"))
    assert (changed["columns"], changed["template"], changed["batch_size"]) == (None, "$title", 10)

    press(page, "Pause")
    sure(page, "Pause")
    expect(page.locator(".badge", has_text="paused")).to_be_visible()
    press(page, "Resume")
    expect(page.locator(".badge", has_text="idle")).to_be_visible()
    page.goto("/vectorizers")
    press(row(page, "recipes_embedding"), "Drop")
    page.get_by_label(re.compile("Also delete its vectors")).check()
    press(page.locator("#sheet"), "Drop")
    told(page, "The vectorizer and its vectors are dropped")
    assert one(stage, "SELECT to_regclass('recipes_embedding_store')") is None


def test_journals_come_in_as_files_and_go_out_again(stage: Stage, open_as: Open, tmp_path: Path) -> None:
    file = tmp_path / "june.jsonl"
    lines = [{"id": f"j{n}", "date": f"2030-06-0{n}", "text": f"Day {n} at sea."} for n in (1, 2)]
    file.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\nnot json\n")
    page = open_as("operator", "/journal")
    press(page, "Import")
    fill(page, user="noor").locator("[type=file]").set_input_files(file)
    press(page.locator("#sheet"), "Import")
    expect(page.locator("#sheet .told")).to_contain_text("2 new, 0 changed, 0 same, 1 bad", ignore_case=True)
    expect(page.locator("#sheet .told")).to_contain_text("june.jsonl:3: not JSON", ignore_case=True)
    assert one(stage, "SELECT count(*) FROM journal.entries WHERE user_id = 'noor'") == 2

    file.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    page.locator("#sheet [type=file]").set_input_files(file)
    press(page.locator("#sheet"), "Import")
    told(page, "0 new, 0 changed, 2 same, 0 bad")
    expect(row(page, "noor")).to_contain_text("100 %", timeout=90_000)

    press(row(page, "noor"), "Analyse")
    press(fill(page, again="sentiment_analysis"), "Analyse")
    told(page, "enqueued")
    with page.expect_download() as coming:
        row(page, "noor").get_by_role("link", name="Export").click()
    assert coming.value.suggested_filename == "journal.jsonl"
    came = [orjson.loads(line) for line in Path(coming.value.path()).read_bytes().splitlines()]
    assert [entry["id"] for entry in came] == ["j1", "j2"]


def test_providers_show_what_is_set_up_and_what_each_did(stage: Stage, open_as: Open) -> None:
    page = open_as("viewer", "/providers")
    expect(row(page, "local")).to_contain_text("ready")
    status = {one["provider"]: one for one in stage.ask(lambda db: db.ai.ai_provider_status())}
    for name, provider in status.items():
        expect(row(page, name)).to_contain_text(provider["circuit"])


def test_a_token_is_shown_once_works_and_is_revoked(stage: Stage, open_as: Open) -> None:
    page = open_as("admin", "/access")
    press(page, "Create token")
    press(fill(page, name="robot", role="viewer", days="-1"), "Create")
    expect(page.locator("#sheet .told")).to_contain_text("Days must be more than 0", ignore_case=True)
    press(fill(page, days="30"), "Create")
    secret = page.locator("#sheet pre").inner_text()
    press(page.locator("#sheet"), "Done")
    assert secret.startswith("sb_")
    expect(page.locator("#sheet pre")).to_have_count(0)
    assert secret not in page.content()
    me = f"{stage.url}/api/v1/admin/me"
    bearer = {"Authorization": f"Bearer {secret}"}
    assert httpx.get(me, headers=bearer).json() == {"name": "robot", "role": "viewer"}

    expect(row(page, "robot")).to_contain_text("live")
    press(row(page, "robot"), "Revoke")
    sure(page, "Revoke")
    expect(row(page, "robot")).to_contain_text("revoked")
    assert httpx.get(me, headers=bearer).status_code == 401
    audit = page.get_by_role("region", name="Audit log")
    expect(audit.get_by_role("row", name=re.compile("token.create robot done"))).to_be_visible()

    press(page, "Create login link")
    press(page.locator("#sheet"), "Create link")
    link = page.locator("#sheet pre").inner_text()
    assert httpx.get(link).status_code == 200
    assert httpx.post(link).headers["location"] == "/"
    assert "already used" in httpx.post(link).text


# Page, action, its argument: everything that changes something.
FORBIDDEN = [
    ("/queues", "pause", "queue letters"), ("/queues", "resume", "queue letters"),
    ("/queues", "limit", "queue letters"), ("/queues", "reset", "task_type stamp"),
    ("/queues", "weight", "acme"), ("/queues", "age", ""), ("/schedules", "save", ""), ("/schedules", "run", "tidy"),
    ("/schedules", "pause", "tidy"), ("/schedules", "remove", "tidy"), ("/vectorizers", "create", ""),
    ("/vectorizers", "pause", "1"), ("/vectorizers", "drop", "1"), ("/journal", "process", ""),
    ("/journal", "import", ""), ("/workers", "restart-slot", ""), ("/workers", "scale", ""),
    ("/tasks", "cancel-all", ""), ("/tasks", "retry-selected", ""), ("/runs", "start-run", "survey"),
    ("/tasks", "create", "json odd"), ("/tasks", "retry-group", "x"), ("/ai/limits", "set", "tenant x"),
    ("/ai/limits", "remove", "tenant x"),
]  # fmt: skip
SHEETS = ["/queues?ask=limit&arg=queue+x", "/queues?ask=weight", "/schedules?ask=edit", "/vectorizers?ask=create",
          "/journal?ask=import", "/workers?ask=scale", "/tasks?ask=new", "/ai/limits?ask=set"]  # fmt: skip


def force(page: Page, act: str, arg: str) -> None:
    """Press a button that the page does not have."""
    page.locator("main .title").first.evaluate(
        "(at, [act, arg]) => { const made = document.createElement('button'); made.name = 'act';"
        " made.value = `${act} ${arg}`; made.setAttribute('form', 'acts'); at.append(made); made.click();"
        " made.remove() }",
        [act, arg],
    )


def test_a_viewer_sees_no_button_that_acts_and_forces_none(stage: Stage, open_as: Open) -> None:
    kept = "SELECT (SELECT count(*) FROM shiftboss.schedules) + (SELECT count(*) FROM shiftboss.pauses)"
    before = one(stage, kept)
    page = open_as("viewer")
    for path in sorted({path for path, _, _ in FORBIDDEN}):
        page.goto(path)
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("main [name=act], main [data-sheet]")).to_have_count(0)
        for _, act, arg in (one for one in FORBIDDEN if one[0] == path):
            page.evaluate("document.getElementById('toasts').replaceChildren()")
            force(page, act, arg)
            expect(page.get_by_role("status")).to_contain_text("needs operator")
    assert one(stage, kept) == before
    for path in SHEETS:
        assert page.request.get(path).status == 403, path
    file: Any = {"name": "a.jsonl", "mimeType": "text/plain", "buffer": b"{}"}
    assert page.request.post("/journal", multipart={"act": "import", "file": file}).status == 403
    assert page.request.get("/journal/export").status == 200


def test_access_is_for_admins_alone(stage: Stage, open_as: Open) -> None:
    page = open_as("operator")
    expect(page.get_by_role("navigation").get_by_role("link", name="Access")).to_have_count(0)
    page.goto("/access")
    expect(page.get_by_text("this needs admin")).to_be_visible()
    expect(page.locator("main table")).to_have_count(0)


def test_workers_are_scaled_paused_and_drained(stage: Stage, open_as: Open) -> None:
    page = open_as("operator", "/workers")
    press(page, "Scale …")
    host = page.locator("#sheet [name=pool] option", has_text="default").get_attribute("value") or ""
    press(fill(page, pool=host, count="2"), "Scale")
    told(page, "default is scaled to 2 on")
    second = page.get_by_role("row", name=re.compile("worker:default:1"))
    expect(second.get_by_text("healthy")).to_be_visible(timeout=60_000)
    press(second, "Pause")
    sure(page, "Pause")
    expect(second.get_by_text("paused")).to_be_visible()
    paused = stage.ask(lambda db: db.health.slots())
    assert next(one["component"] for one in paused if one["paused"]).endswith("worker:default:1")
    press(second, "Resume")
    expect(second.get_by_text("paused")).to_have_count(0)
    press(page, "Scale …")
    press(fill(page, pool=host, count="1"), "Scale")
    told(page, "default is scaled to 1 on")
    expect(second).to_have_count(0, timeout=60_000)


def test_error_groups_and_selected_tasks_are_retried(stage: Stage, open_as: Open) -> None:
    bills = [NewTask(task_type="charge", params={"order": n}, max_attempts=1) for n in range(900, 904)]
    stage.ask(lambda db: db.tasks.enqueue(bills))
    rows = "n => document.querySelectorAll('[aria-label=Tasks] tbody tr').length >= n"
    tried = (
        "SELECT count(*) FROM shiftboss.past_attempts a JOIN tasks t ON t.id = a.task_id"
        " WHERE t.task_type = 'charge' AND t.params ->> 'order' ~ '^90'"
    )
    page = open_as("operator", "/tasks?status=Failed")
    page.wait_for_function(rows, arg=4)
    region = page.get_by_role("region", name="Error groups")
    group = region.get_by_role("row", name=re.compile("the payment service refused order"))
    assert one(stage, tried) == 4
    press(group, "Retry all")
    sure(page, "Retry all")
    told(page, "queued again")
    page.goto("/tasks?status=Failed&task_type=charge")
    page.wait_for_function(rows, arg=4)
    assert one(stage, tried) == 8
    for key in "jxjx":
        page.keyboard.press(key)
    press(page, "Retry selected")
    told(page, "2 tasks queued again")
    page.wait_for_function(rows, arg=4)
    expect(page.locator("tbody input:checked")).to_have_count(0)


def test_everything_works_without_a_script(stage: Stage, open_as: Open) -> None:
    stage.ask(lambda db: db.tasks.enqueue([NewTask(task_type="stamp", queue="plain")]))
    page = open_as("operator", "/queues", java_script_enabled=False)
    press(row(page, "plain"), "Limits")
    press(fill(page, max_running="3"), "Set")
    expect(page.locator(".told-line")).to_contain_text("The limits of plain are set")
    assert one(stage, "SELECT max_running FROM shiftboss.limits WHERE name = 'plain'") == 3
    press(row(page, "plain"), "Pause")
    press(fill(page, reason="by hand"), "Pause")
    press(row(page, "plain"), "Resume")
    expect(page.locator(".told-line")).to_contain_text("plain is resumed")
    page.goto("/tasks?queue=plain")
    press(page.get_by_role("row", name=re.compile("stamp")), "Cancel")
    assert one(stage, "SELECT status FROM tasks WHERE queue = 'plain'") == "Cancelled"
