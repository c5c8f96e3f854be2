"""One view: the order and its task are one transaction."""

from django.db import transaction
from django.http import JsonResponse
from django.urls import path

from shop.models import Order
from shop.tasks import confirm


@transaction.atomic
def create_order(request, item):
    order = Order.objects.create(item=item)
    result = confirm.enqueue(order.pk)
    if "fail" in request.GET:
        raise RuntimeError("changed our mind: neither order nor task exists")
    return JsonResponse({"task": result.id}, status=202)


urlpatterns = [path("orders/<item>", create_order)]
