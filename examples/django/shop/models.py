"""What the shop sells."""

from django.db import models


class Order(models.Model):
    id = models.AutoField(primary_key=True)
    item = models.CharField(max_length=100)
