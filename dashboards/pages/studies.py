"""The pages of studies.

/studies           what each claims, and the verdict
/studies/{name}    claim, tables and verdicts of one
"""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from dashboards.render import missing_page, page
from dashboards.text.study import (
    MEASURE_HEADS,
    answer_tone,
    claim_counts,
    cost_words,
    first_effect,
    measure_cells,
    scale_words,
    verdict_counts,
)
from orchestrator.errors import NotFoundError
from orchestrator.studies.claims import ClaimVerdict
from orchestrator.studies.reports import Studies


def study_pages(studies: Studies) -> APIRouter:
    """Return the router of the studies' pages, for the pages' router."""
    router = APIRouter(include_in_schema=False)

    @router.get("/studies")
    def list_studies() -> HTMLResponse:
        listed = studies.summaries()
        return page(
            "studies/studies.html",
            studies=listed,
            counts=claim_counts(listed),
            first_effect=first_effect,
            verdict_counts=verdict_counts,
            ClaimVerdict=ClaimVerdict,
        )

    @router.get("/studies/{name}")
    def study_page(name: str) -> HTMLResponse:
        try:
            study = studies.get(name)
        except NotFoundError as error:
            return missing_page(str(error))
        return page(
            "studies/study.html",
            study=study,
            cost_words=cost_words,
            tone=answer_tone,
            ClaimVerdict=ClaimVerdict,
            heads=MEASURE_HEADS,
            measure_cells=measure_cells,
            scale_words=scale_words,
        )

    return router
