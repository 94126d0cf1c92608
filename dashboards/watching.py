"""`/queue`: what runs, what waits and until when, what broke, who leads; and `/memory`: what optimizers would keep."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from dashboards.attention import concerns, dispatcher
from dashboards.planner import bars, blocks
from dashboards.reader import Reader
from dashboards.render import page
from orchestrator.footprints import RANK_RATIOS, STATE_DTYPES, Question
from worker import presets

WAITING_SHOWN = 100
FIRST_MODEL = "gpt2-124m"


def watch_pages(reader: Reader) -> APIRouter:
    """Both pages."""
    router = APIRouter(include_in_schema=False)
    bench = reader.bench

    @router.get("/queue")
    def queue() -> HTMLResponse:
        version, activity = bench.version(), bench.activity(waiting=WAITING_SHOWN)
        return page(
            "queue.html",
            version=version,
            activity=activity,
            leader=dispatcher(activity),
            concerns=concerns(activity, bench.hindrance()),
        )

    @router.get("/memory")
    def memory(
        request: Request,
        model: Annotated[str, Query(max_length=64)] = FIRST_MODEL,
        rank: Annotated[str, Query(max_length=16)] = "",
        dtype: Annotated[str, Query(max_length=16)] = "",
    ) -> HTMLResponse:
        try:
            question = Question.of(model, float(rank) if rank else None, dtype or None)
            found = bench.footprints.ask(question)
        except (KeyError, ValueError):
            return page("missing.html", status=404, what=f"There is no footprint of {model!r} with these options.")
        return page(
            "memory.html",
            question=question,
            preset=presets.preset(model),
            footprint=found,
            failure=None if found else bench.footprints.failure(question),
            bars=bars(found) if found else (),
            blocks=blocks(found) if found else (),
            models=presets.PRESETS,
            ratios=RANK_RATIOS,
            dtypes=STATE_DTYPES,
        )

    return router
