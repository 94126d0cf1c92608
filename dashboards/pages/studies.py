"""The pages of claims: of studies, and of campaigns, which are tries at improving on a baseline under one error.

/studies                                  what each claims, and the verdict
/studies/{name}                           claim, figures, tables and verdicts of one
/studies/{name}/figures/{scale}.{form}    its figures with intervals, beside the paper's
/campaigns                                the list
/campaigns/{id}                           one with its verdicts and its ledger
"""

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from dashboards.figures.registry import STUDY
from dashboards.files.figures import FileForm, figure_answer
from dashboards.palette import ThemeName
from dashboards.render import may_administer, or_missing_page, page
from dashboards.text.study import answer_tone, cost_words, figure_text, interval_text
from dashboards.text.words import Chip
from orchestrator.campaigns.ledger import TryState
from orchestrator.services.campaigns import Campaigns
from orchestrator.studies.evidence import StudyScale
from orchestrator.studies.findings import ClaimVerdict
from orchestrator.studies.reports import Studies

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


def study_pages(studies: Studies) -> APIRouter:
    """To be included by the pages' router."""
    router = APIRouter(include_in_schema=False)

    @router.get("/studies")
    def list_studies() -> HTMLResponse:
        return page("studies/studies.html", studies=studies.summaries(), tone=answer_tone, ClaimVerdict=ClaimVerdict)

    @router.get("/studies/{name}")
    @or_missing_page
    def study_page(name: str) -> HTMLResponse:
        return page(
            "studies/study.html",
            study=studies.one(name),
            cost_words=cost_words,
            tone=answer_tone,
            ClaimVerdict=ClaimVerdict,
            figure_text=figure_text,
            interval_text=interval_text,
        )

    @router.get("/studies/{name}/figures/{scale}.{form}")
    def figure(name: str, scale: StudyScale, form: FileForm, theme: ThemeName = "light") -> Response:
        found = studies.one(name)
        drawn = STUDY.draw(found.scale(scale).best(), found.axis, theme)
        return figure_answer(
            drawn, form, theme, name=f"{found.name}-{scale.value}", title=STUDY.title.format(study=found.title)
        )

    return router


def campaign_pages(campaigns: Campaigns) -> APIRouter:
    """Both of them. What is held out is shown to admins alone."""
    router = APIRouter(include_in_schema=False)

    @router.get("/campaigns")
    def every_campaign() -> HTMLResponse:
        found = campaigns.page(limit=CAMPAIGNS_SHOWN)
        return page("studies/campaigns.html", campaigns=found, limit=CAMPAIGNS_SHOWN)

    @router.get("/campaigns/{campaign_id}")
    @or_missing_page
    def campaign(campaign_id: str) -> HTMLResponse:
        found, ledger = campaigns.get(campaign_id), campaigns.ledger(campaign_id)
        held_out = campaigns.held_out_workloads(campaign_id) if found.held_out and may_administer() else None
        return page(
            "studies/campaign.html",
            campaign=found,
            tries=campaigns.tries(campaign_id)[::-1][:TRIES_SHOWN],
            limit=TRIES_SHOWN,
            states=STATES,
            entries=tuple(zip(ledger.entries, ledger.hashes, strict=True))[::-1][:TRIES_SHOWN],
            faults=ledger.faults,
            held_out=held_out,
        )

    return router
