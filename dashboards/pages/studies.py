"""The pages of studies.

/studies                                  what each claims, and the verdict
/studies/{name}                           claim, figures, tables and verdicts of one
/studies/{name}/figures/{scale}.{form}    its figures with intervals, beside the paper's
"""

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from dashboards.figures.registry import STUDY
from dashboards.files.figures import FileForm, figure_answer
from dashboards.palette import ThemeName
from dashboards.render import or_missing_page, page
from dashboards.text.study import MEASURE_HEADS, answer_tone, cost_words, measure_cells, scale_words, summary_lines
from orchestrator.studies.claims import ClaimVerdict
from orchestrator.studies.reports import Studies
from orchestrator.studies.study import StudyScale


def study_pages(studies: Studies) -> APIRouter:
    """To be included by the pages' router."""
    router = APIRouter(include_in_schema=False)

    @router.get("/studies")
    def list_studies() -> HTMLResponse:
        listed = studies.summaries()
        return page(
            "studies/studies.html",
            studies=listed,
            summary=summary_lines(listed),
            tone=answer_tone,
            ClaimVerdict=ClaimVerdict,
        )

    @router.get("/studies/{name}")
    @or_missing_page
    def study_page(name: str) -> HTMLResponse:
        return page(
            "studies/study.html",
            study=studies.one(name),
            cost_words=cost_words,
            tone=answer_tone,
            ClaimVerdict=ClaimVerdict,
            heads=MEASURE_HEADS,
            measure_cells=measure_cells,
            scale_words=scale_words,
        )

    @router.get("/studies/{name}/figures/{scale}.{form}")
    def figure(name: str, scale: StudyScale, form: FileForm, theme: ThemeName = "light") -> Response:
        found = studies.one(name)
        drawn = STUDY.draw(found.scale(scale).best(), found.axis, theme)
        return figure_answer(
            drawn, form, theme, name=f"{found.name}-{scale.value}", title=STUDY.title.format(study=found.title)
        )

    return router
