"""Where `AsyncClient` was before it shared a folder with `Client`: notebooks of that time import it from here."""

from api.client import AsyncClient as AsyncClient
