"""Tasks as Django declares them: `from django.tasks import task` from Django 6 on."""

from __future__ import annotations

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

from django.db import connection


@task(queue_name="mail", priority=10)
def confirm(order: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders WHERE id = %s", [order])
        assert cursor.fetchone() == (1,)
    return f"order {order} is confirmed"


@task(takes_context=True)
async def tell(context, text: str) -> str:
    if text == "nothing":
        raise ValueError("there is nothing to tell")
    return f"{context.task_result.id}: {text}"
