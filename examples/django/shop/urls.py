"""One view: the order and its task are one transaction."""

from django.db import connection, transaction
from django.http import JsonResponse
from django.urls import path

from shop.tasks import confirm


@transaction.atomic
def create_order(request, order):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", [order])
    result = confirm.enqueue(order)
    if "fail" in request.GET:
        raise RuntimeError("changed our mind: neither order nor task exists")
    return JsonResponse({"task": result.id}, status=202)


urlpatterns = [path("orders/<int:order>", create_order)]
