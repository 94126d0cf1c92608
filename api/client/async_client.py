"""Where the documents of earlier versions import `AsyncClient` from; it is declared with `Client`."""

from api.client.client import AsyncClient as AsyncClient
