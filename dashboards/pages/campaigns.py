"""`/campaigns`: tries at improving on a baseline under one error; one campaign with its verdicts and its ledger."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from dashboards.render import may_administer, missing_page, page
from dashboards.text.words import Chip
from orchestrator.analysis.campaigns import TryState
from orchestrator.errors import NotFoundError
from orchestrator.services.campaigns import Campaigns

CAMPAIGNS_SHOWN = 200
TRIES_SHOWN = 500
"""The latest; REST has them all."""
STATES = {
    TryState.REGISTERED: Chip(text="registered", tone="wait"),
    TryState.RUNNING: Chip(text="running", tone="live"),
    TryState.HELD_UP: Chip(text="held up", tone="warn"),
    TryState.IMPROVED: Chip(text="improved", tone="good"),
    TryState.NOT_SHOWN: Chip(text="not shown", tone="wait"),
}


def campaign_pages(campaigns: Campaigns) -> APIRouter:
    """Both of them. What is held out is shown to admins alone."""
    router = APIRouter(include_in_schema=False)

    @router.get("/campaigns")
    def every_campaign() -> HTMLResponse:
        found = campaigns.page(limit=CAMPAIGNS_SHOWN)
        return page("campaigns.html", campaigns=found, limit=CAMPAIGNS_SHOWN)

    @router.get("/campaigns/{campaign_id}")
    def campaign(campaign_id: str) -> HTMLResponse:
        try:
            found, tries, ledger = (
                campaigns.get(campaign_id),
                campaigns.tries(campaign_id),
                campaigns.ledger(campaign_id),
            )
            held_out = campaigns.held_out_verdicts(campaign_id) if found.held_out and may_administer() else None
        except NotFoundError as error:
            return missing_page(str(error))
        return page(
            "campaign.html",
            campaign=found,
            tries=tries[::-1][:TRIES_SHOWN],
            limit=TRIES_SHOWN,
            states=STATES,
            entries=tuple(zip(ledger.entries, ledger.hashes, strict=True))[::-1][:TRIES_SHOWN],
            faults=ledger.faults,
            held_out=held_out,
        )

    return router
