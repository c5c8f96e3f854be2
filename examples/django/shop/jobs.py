"""Tasks of an App, with all features of Shiftboss. Its workers run Django's own tasks as well."""

from shiftboss import App
from shiftboss.frameworks.django import app as django_tasks  # sets Django up in a worker; stays first
from shop.models import Order

app = App("shop")
app.include(django_tasks)


@app.task(queue="mail", max_attempts=5, retry_on=ConnectionError)
def send_receipt(order: int) -> str:
    return f"receipt for {Order.objects.get(pk=order).item}"


@app.cron("0 6 * * *", timezone="Europe/Berlin")
def count_orders() -> int:
    return Order.objects.count()
