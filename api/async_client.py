"""Where notebooks of the first versions import `AsyncClient` from."""

from api.client.client import AsyncClient as AsyncClient
