"""The typed clients, `Client` and `AsyncClient`: three lines in a notebook, the same records that the service uses."""

from api.client.client import AsyncClient as AsyncClient
from api.client.client import Client as Client
from api.client.client import ClientError as ClientError
from api.client.own_runs import OwnRun as OwnRun
from api.client.own_runs import start_run as start_run
