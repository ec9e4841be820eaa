"""A Django project in one module: the database's name comes from the environment."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.http import HttpRequest, JsonResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("DB_NAME", "library.db"),
            "OPTIONS": {"timeout": 30},
        }
    },
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for load tests only",  # noqa: S106 - this project keeps nothing
)
django.setup()


def users(request: HttpRequest) -> JsonResponse:
    from django.contrib.auth.models import User

    if request.method == "POST":
        User.objects.create(username=json.loads(request.body)["name"])
    return JsonResponse({"users": User.objects.count()})


urlpatterns = [path("users", users)]


def make() -> object:
    """Makes the tables and returns the app: each boot calls it once."""
    with ThreadPoolExecutor() as pool:  # the server calls this in its event loop, where Django's queries may not run
        pool.submit(call_command, "migrate", verbosity=0).result()
    return get_asgi_application()
