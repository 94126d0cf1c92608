"""`/queue`: what runs, what waits and until when, what broke, who leads; and `/memory`: what optimizers keep, on a
page and as files (`/memory/figures/plan.{form}`)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from dashboards.figures.planner import bars, blocks
from dashboards.figures.registry import PLAN
from dashboards.files.figures import FileForm
from dashboards.pages.alerts import concerns, dispatcher
from dashboards.pages.answers import figure_answer
from dashboards.palette import ThemeName
from dashboards.render import page
from orchestrator.errors import NotFoundError
from orchestrator.services.monitor import Monitor
from orchestrator.specs.footprints import RANK_RATIOS, STATE_DTYPES, Footprints, Question
from worker.catalog import presets

WAITING_SHOWN = 100
FIRST_MODEL = "gpt2-124m"
Model = Annotated[str, Query(max_length=64)]
Rank = Annotated[str, Query(max_length=16)]
Dtype = Annotated[str, Query(max_length=16)]


def watch_pages(monitor: Monitor, footprints: Footprints) -> APIRouter:
    """Both pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/queue")
    def queue() -> HTMLResponse:
        version, activity = monitor.version(), monitor.activity(waiting=WAITING_SHOWN)
        return page(
            "queue.html",
            version=version,
            activity=activity,
            leader=dispatcher(activity),
            concerns=concerns(activity, monitor.dispatch_blocker()),
        )

    @router.get("/memory")
    def memory(
        request: Request,
        model: Model = FIRST_MODEL,
        rank: Rank = "",
        dtype: Dtype = "",
    ) -> HTMLResponse:
        try:
            question = _question(model, rank, dtype)
            found = footprints.ask(question)
        except (KeyError, ValueError):
            return page("missing.html", status=404, what=f"There is no footprint of {model!r} with these options.")
        return page(
            "memory.html",
            question=question,
            preset=presets.preset(model),
            footprint=found,
            failure=None if found else footprints.failure(question),
            bars=bars(found) if found else (),
            blocks=blocks(found) if found else (),
            models=presets.PRESETS,
            ratios=RANK_RATIOS,
            dtypes=STATE_DTYPES,
            query=request.url.query and f"?{request.url.query}",
        )

    @router.get("/memory/figures/plan.{form}")
    def plan(
        form: FileForm, model: Model = FIRST_MODEL, rank: Rank = "", dtype: Dtype = "", theme: ThemeName = "light"
    ) -> Response:
        try:
            found = footprints.ask(_question(model, rank, dtype))
        except (KeyError, ValueError):
            raise NotFoundError(f"there is no footprint of {model!r} with these options; /memory lists them") from None
        if found is None:
            raise NotFoundError(f"{model} is still being counted with these options; ask again in some seconds")
        drawn = PLAN.draw(found, theme)
        return figure_answer(drawn, form, theme, name=f"memory-{found.model}", title=PLAN.title.format(model=model))

    return router


def _question(model: str, rank: str, dtype: str) -> Question:
    """What is asked for; raises `KeyError` or `ValueError` where nothing can answer it."""
    return Question.of(model, float(rank) if rank else None, dtype or None)
