"""What the commands of a page need around them: files, tasks, processes, and names of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

#: A module with the tasks that pages name.
TASKS = """
import logging

from pydantic import BaseModel

from shiftboss import App, Context

app = App("shop")
log = logging.getLogger(__name__)


class Verdict(BaseModel):
    ok: bool
    comment: str = ""


@app.task()
async def greet(name: str) -> str:
    log.info("greeting %s", name)
    return f"Hello, {name}"


@app.task(max_attempts=1)
async def publish(ctx: Context) -> None:
    async def page() -> str:
        return "the page"

    await ctx.step("publish", page)
    raise ConnectionError("the printer is away")


@app.task()
async def ask(ctx: Context) -> str:
    for _ in range(2):
        await ctx.wait_for("approval", Verdict, question="Publish it?")
    await ctx.wait_for("approved", question="Really?")
    return "published"
"""
#: Waits until the command prints something.
UNTIL = 'until [ -n "$({})" ]; do sleep 0.1; done\n'
FAILED = "ID=$(shiftboss submit shop.publish)\n" + UNTIL.format("shiftboss tasks list --status failed")


#: One task that asks, and one that has got its first answer and asks again.
ASKED = (
    "TWICE=$(shiftboss submit shop.ask)\n"
    + UNTIL.format("shiftboss approvals")
    + 'shiftboss approvals answer "$TWICE" ok=true\n'
    + UNTIL.format("shiftboss approvals | grep approval#2")
    + "ASKS=$(shiftboss submit shop.ask)\n"
    + UNTIL.format('shiftboss approvals | grep "$ASKS"')
)
NONE_RUNS = 'until [ -z "$(shiftboss tasks list --status queued --type shop.publish)" ]; do sleep 0.1; done\n'


class Stage(NamedTuple):
    """Commands to run before those of a page, and words of the page with what is run in their place."""

    before: str = ""
    replaced: Mapping[str, str] = MappingProxyType({})


SERVED = "shiftboss worker tasks:app\n"
#: The doctor finds a problem and exits with 1: the server of the tests has fsync off.
DOCTOR = {"shiftboss doctor": "problems shiftboss doctor"}
STAGES = {
    "README.md": Stage(),
    "docs/install.md": Stage(
        "unset SHIFTBOSS_DATABASE_URL\n", {"postgresql://app@db.internal/app": "$EMPTY_DATABASE_URL"} | DOCTOR
    ),
    "docs/how-to/admin-api.md": Stage(
        replaced={
            "http://127.0.0.1:8888": '"$ADMIN"',
            "curl -N": "endless curl --fail --no-progress-meter -N",
        }
    ),
    "docs/how-to/ai.md": Stage(
        "TASK=$(shiftboss submit shop.greet)\n",
        {"7d1f": "$(shiftboss ai calls --limit 1 | cut -f1)", "0199d3c2-5b1e": '"$TASK"'},
    ),
    "docs/how-to/backup-and-restore.md": Stage(
        replaced={"postgresql://copy.internal/fleet": '"$SHIFTBOSS_DATABASE_URL"'} | DOCTOR
    ),
    "docs/how-to/command-line.md": Stage(SERVED + FAILED),
    "docs/how-to/coordinator.md": Stage(
        f"{SERVED}cp tasks.py myapp.py\nseq 60 >arrivals.csv\n"
        'shiftboss coordinator --port "$OTHER_PORT"\n'
        "shiftboss supervise tasks:app --queue emails=1 --host web-1\n",
        {
            "127.0.0.1:50051": '127.0.0.1:"$COORDINATOR_PORT"',
            "a.internal:50051": '127.0.0.1:"$COORDINATOR_PORT"',
            "b.internal:50051": '127.0.0.1:"$OTHER_PORT"',
            "scale 8": "scale 2",
            "emails=8": "emails=1",
        },
    ),
    "docs/how-to/deploy.md": Stage(
        replaced={"postgresql://shiftboss@db.internal/shiftboss": "$EMPTY_DATABASE_URL"} | DOCTOR
    ),
    "docs/how-to/django.md": Stage(
        'cp -R "$EXAMPLES"/django/* .\nexport DATABASE_URL="$SHIFTBOSS_DATABASE_URL"\n',
        # Only the plain command is known to stay.
        {"python manage.py shiftboss worker": "DJANGO_SETTINGS_MODULE=shop.settings shiftboss worker"},
    ),
    "docs/how-to/durable-work.md": Stage(
        f"{SERVED}{FAILED}{ASKED}",
        {
            "answer 0199d3c2-5b1e '{": 'answer "$TWICE" \'{',
            "0199d3c2-5b1e": '"$ASKS"',
            "shiftboss tasks retry ID --from": f"{NONE_RUNS}shiftboss tasks retry ID --from",
            " ID": ' "$ID"',
        },
    ),
    "docs/how-to/encrypt-payloads.md": Stage(),
    "docs/how-to/fair-shares.md": Stage(),
    "docs/how-to/journal.md": Stage(
        'grep -e mara-2025-02-1 "$SAMPLE"/mara.jsonl >my-journal.jsonl\n'
        "printf 'id,date,body\\n1,2025-06-01,A walk to the sea.\\n' >diary.csv\n"
        'echo \'{"id": "2", "written_at": "2025-06-02", "content": "Rain."}\' >diary.jsonl\n'
        "mkdir notes && echo 'A long letter.' >notes/2025-06-03.md\n"
    ),
    "docs/how-to/monitor.md": Stage(SERVED, DOCTOR),
    "docs/how-to/poolers-and-failover.md": Stage(
        replaced={"enqueue web": 'enqueue "$ROLE"', "worker fleet": 'worker "$ROLE"'}
    ),
    "docs/how-to/retries-and-limits.md": Stage(),
    "docs/how-to/runs-and-bots.md": Stage(
        "shiftboss admin\n",
        {
            "http://127.0.0.1:8888": '"$ADMIN"',
            "curl": "curl --fail --no-progress-meter",
            "shiftboss runs show ID": 'shiftboss runs show "$(shiftboss runs list | cut -f1)"',
            "shiftboss runs cancel ID": "shiftboss queues pause default\n"
            'ID=$(shiftboss runs start monitor --city rotterdam)\nshiftboss runs cancel "$ID"',
            "shiftboss runs retry ID": 'shiftboss runs retry "$ID"',
        },
    ),
    "docs/how-to/schedules.md": Stage(),
    "docs/how-to/see-inside.md": Stage(
        SERVED + FAILED + UNTIL.format("shiftboss errors list") + "cp tasks.py shop.py\n",
        {"0199d3c2-5b1e": '"$ID"', "3f2a91": "$(shiftboss errors list | cut -f1)"},
    ),
    "docs/how-to/supervise.md": Stage(
        "cp tasks.py mymodule.py\n", {"processing=4": "processing=1", "processing=6": "processing=2"}
    ),
    "docs/how-to/upgrade.md": Stage(replaced={"worker fleet": 'worker "$ROLE"'}),
    "docs/how-to/vectorizers.md": Stage(
        "shiftboss admin\n"
        "shiftboss db shell -- -c 'CREATE TABLE blog (id int PRIMARY KEY, title text, body text, lang text, hits int)'\n"
        "shiftboss db shell -- -c \"INSERT INTO blog VALUES (1, 'Passwords', 'How to reset one', 'en', 7)\"\n"
        "shiftboss vectorizer create blog --column title --column body\n",
        {"127.0.0.1:8888": '"$ADMIN"', "curl": "curl --fail --no-progress-meter"},
    ),
}
