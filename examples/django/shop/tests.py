"""`python manage.py test`, or pytest with pytest-django."""

from django.db import connection
from django.test import Client, TestCase, TransactionTestCase

from shiftboss.frameworks.django import kit
from shop.jobs import app, send_receipt
from shop.models import Order
from shop.tasks import confirm


def enqueued() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM tasks")
        return cursor.fetchone()[0]


class EnqueueTest(TestCase):
    """Nothing runs: the test looks at what was enqueued, on its own connection."""

    def test_order_and_task_are_one_transaction(self):
        client = Client(raise_request_exception=False)
        id = client.post("/orders/tea").json()["task"]
        client.post("/orders/cake?fail")
        self.assertEqual((Order.objects.count(), enqueued()), (1, 1))
        self.assertEqual(confirm.get_result(id).status, "READY")


class RunTest(TransactionTestCase):
    """The kit runs what was enqueued, on connections of its own, so the test must commit."""

    def test_the_order_is_confirmed(self):
        with kit() as tasks:
            id = self.client.post("/orders/tea").json()["task"]
            tasks.drain()
            self.assertEqual(confirm.get_result(id).return_value, "the order of tea is confirmed")

    def test_the_receipt_is_sent(self):
        order = Order.objects.create(item="cake")
        with kit(app) as tasks:
            handle = app.sync.enqueue(send_receipt.call(order.pk), conn=connection)
            tasks.drain("mail")
            self.assertEqual(handle.result(), "receipt for cake")
