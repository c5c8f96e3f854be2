"""Settings of a Django project whose tasks run on Shiftboss, in the project's own database."""

import os
from urllib.parse import urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path[1:],
        "USER": _url.username,
        "PASSWORD": _url.password,
        "HOST": _url.hostname,
        "PORT": _url.port,
    }
}
TASKS = {
    "default": {"BACKEND": "shiftboss.frameworks.django.ShiftbossBackend", "QUEUES": ["default", "mail"]}
}
INSTALLED_APPS = ["shop", "shiftboss.frameworks.django"]
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["testserver"]
SECRET_KEY = "only for the example"
USE_TZ = True
