"""Tasks as Django declares them: `from django.tasks import task` from Django 6 on."""

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

from shop.models import Order


@task(queue_name="mail", priority=10)
def confirm(order: int) -> str:
    return f"the order of {Order.objects.get(pk=order).item} is confirmed"


@task(takes_context=True)
async def tell(context, text: str) -> str:
    if text == "nothing":
        raise ValueError("there is nothing to tell")
    return f"{context.task_result.id}: {text}"
