"""Create two orders, one of which is rolled back, and let a worker run what there is.

DATABASE_URL=postgresql://… python demo.py
"""

from __future__ import annotations

import os

import django
from django.core.management import call_command
from django.db import connection
from django.test import Client

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from shop.tasks import confirm, tell  # noqa: E402 - Django must be set up

from shiftboss.frameworks.django import app  # noqa: E402


def main() -> None:
    call_command("migrate", verbosity=0)
    client = Client(raise_request_exception=False)
    created = client.post("/orders/tea").json()["task"]
    assert client.post("/orders/cake?fail").status_code == 500
    told, silent = tell.enqueue("the news"), tell.enqueue("nothing")
    with app.sync.worker():
        for id in (created, told.id, silent.id):
            app.sync.handle(id).wait(timeout=30)
    print(confirm.get_result(created).return_value)
    print(tell.get_result(told.id).return_value == f"{told.id}: the news")
    told.refresh()
    silent.refresh()
    print(told.status, silent.status, silent.errors[0].exception_class.__name__)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM tasks WHERE queue = 'mail'")
        print("mails:", cursor.fetchone()[0])
    app.sync.close()


if __name__ == "__main__":
    main()
