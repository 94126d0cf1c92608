"""`adapm-bench mcp`: the gate for automatic research over standard input and output (Model Context Protocol)."""

import asyncio

from api.cli.console import refuse
from api.cli.service import Url, exit_on_refusal, service_url


def mcp(url: Url = None) -> None:
    """Serve campaigns to an agent over standard input and output, by the Model Context Protocol."""
    try:
        from api.mcp_server import serve  # of an extra that not every installation has
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("mcp"):
            raise
        refuse("adapm-bench mcp needs the package mcp; in the project's folder: pip install '.[mcp]'")
    with exit_on_refusal():
        asyncio.run(serve(service_url(url)))
