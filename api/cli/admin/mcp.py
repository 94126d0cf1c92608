"""`adapm-bench mcp`: a campaign for agents, over standard input and output (Model Context Protocol)."""

import asyncio

from api.cli.console import refuse
from api.cli.experiments.specs import SpecFile
from api.cli.service import Url, exit_on_refusal, service_url
from api.cli.studies.campaign import read_campaign


def mcp(file: SpecFile, url: Url = None) -> None:
    """Serve a campaign's file to an agent over standard input and output, by the Model Context Protocol."""
    try:
        from api.campaigns.mcp_server import serve  # of an extra that not every installation has
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("mcp"):
            raise
        refuse("adapm-bench mcp needs the package mcp; in the project's folder: pip install '.[mcp]'")
    campaign = read_campaign(file)
    with exit_on_refusal():
        asyncio.run(serve(service_url(url), campaign))
