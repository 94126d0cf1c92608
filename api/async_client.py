"""The import path of `AsyncClient` in notebooks of the first versions."""

from api.client.client import AsyncClient as AsyncClient
