"""`/memory`: what optimizers keep of a model, before it is trained."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from dashboards.render import page
from orchestrator.specs.footprints import (
    RANK_RATIOS,
    RANKS,
    STATE_DTYPES,
    Footprints,
    footprint_question,
)
from worker.catalog import presets
from worker.spec.parts import Precision

FIRST_MODEL = "gpt2-124m"
Model = Annotated[str, Query(max_length=64)]
Rank = Annotated[str, Query(max_length=16)]
Dtype = Annotated[str, Query(max_length=16)]
Ranks = Annotated[int, Query(ge=1, le=RANKS[-1])]
Card = Annotated[str, Query(max_length=16)]
MOST_GIB = 1e6


def memory_pages(footprints: Footprints) -> APIRouter:
    """Return the page."""
    router = APIRouter(include_in_schema=False)

    @router.get("/memory")
    def memory(
        model: Model = FIRST_MODEL,
        rank: Rank = "",
        dtype: Dtype = "",
        ranks: Ranks = 1,
        card: Card = "",
        precision: Precision = "bf16",
    ) -> HTMLResponse:
        try:
            card_gib = float(card) if card and ranks == 1 else None
            if card_gib is not None and not 0 < card_gib <= MOST_GIB:
                raise ValueError(card)
            card_precision = None if card_gib is None else precision
            question = footprint_question(model, float(rank) if rank else None, dtype or None, ranks, card_precision)
            answer = footprints.ask(question)
        except (KeyError, ValueError):
            return page("missing.html", status=404, what=f"There is no footprint of {model!r} with these options.")
        fits = answer.fit(card_gib).fits if answer and card_gib is not None else ()
        plain = {fit.optimizer: fit for fit in fits if not fit.checkpointing}
        return page(
            "service/memory.html",
            question=question,
            preset=presets.preset(model),
            footprint=answer,
            failure=None if answer else footprints.failure(question),
            card=card_gib,
            precision=precision,
            # Without and with activation checkpointing, the least memory first.
            fits=tuple((plain[fit.optimizer], fit) for fit in fits if fit.checkpointing),
            # What could not be counted stands last.
            optimizers=sorted(answer.optimizers, key=lambda usage: (usage.state_bytes is None, usage.state_bytes or 0))
            if answer
            else (),
            kinds=dict.fromkeys(kind for usage in answer.optimizers for kind in usage.state_by_block) if answer else (),
            models=presets.PRESETS,
            ratios=RANK_RATIOS,
            dtypes=STATE_DTYPES,
            numbers_of_ranks=RANKS,
        )

    return router
