"""Names of specifications: optimizers, models, datasets; and the memory of optimizers for a model."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.problems import RefusedError
from api.records import DatasetInfo, ModelInfo, OptimizerInfo, Page, dataset_infos, model_info, optimizer_info
from api.routes.context import JsonRoute, State, problems
from optim import catalog
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.specs.footprints import (
    PLANNED,
    RANK_RATIOS,
    RANKS,
    STATE_DTYPES,
    Footprints,
    footprint_question,
    plan_question,
)
from worker.catalog import datasets as data_catalog
from worker.catalog import presets
from worker.footprint.process import FootprintQuestion
from worker.records.footprint import Footprint
from worker.spec.parts import Precision

router = APIRouter(tags=["catalog"], route_class=JsonRoute)


@router.get("/optimizers")
def optimizers() -> Page[OptimizerInfo]:
    """List the optimizers with their options: their meaning, bounds and defaults."""
    return Page(items=tuple(optimizer_info(entry) for entry in catalog.entries()))


@router.get("/models")
def models() -> Page[ModelInfo]:
    """List the model presets."""
    return Page(items=tuple(model_info(preset) for preset in presets.PRESETS))


def _choice(values: Sequence[object], description: str) -> Any:
    """Return the description of a query parameter whose values are these."""
    return Query(description=description, json_schema_extra={"enum": list(values)})


@router.get("/models/{model}/memory", responses=problems(404, 409))
def memory(
    model: str,
    state: State,
    rank_ratio: Annotated[float | None, _choice(RANK_RATIOS, "Rank of low-rank state over min(m, n).")] = None,
    state_dtype: Annotated[str | None, _choice(STATE_DTYPES, "Type of the state's elements.")] = None,
    ranks: Annotated[int, _choice(RANKS, "Processes that share the model (FSDP2).")] = 1,
    card_gib: Annotated[
        float | None, Query(gt=0, le=1e6, description="Add `fits`: what fits into so much memory, for one process.")
    ] = None,
    micro_batch: Annotated[int, Query(ge=1, le=65_536, description="Sequences in a pass, of the peaks in `fits`.")] = 1,
    precision: Annotated[Precision, Query(description="Of the passes of `fits`.")] = "bf16",
) -> Footprint:
    """Count the memory of training the model under each optimizer, to the byte; of several ranks, on the fullest one.
    The first answer for a model takes some seconds, with `card_gib` a minute."""
    if card_gib is not None and ranks > 1:
        raise ConflictError("what fits a card is counted for one process; ask without ranks, or without card_gib")
    pass_precision = None if card_gib is None else precision
    footprint = _count(
        state.services.footprints, lambda: footprint_question(model, rank_ratio, state_dtype, ranks, pass_precision)
    )
    return footprint if card_gib is None else footprint.fit(card_gib, micro_batch)


@router.get("/models/{model}/plan", responses=problems(404))
def plan(
    model: str,
    state: State,
    optimizer: Annotated[str, _choice(PLANNED, "One with a block plan.")] = PLANNED[0],
    rank_ratio: Annotated[float | None, _choice(RANK_RATIOS, "Rank of low-rank momentum over min(m, n).")] = None,
    state_dtype: Annotated[str | None, _choice(STATE_DTYPES, "Type of the momentum's elements.")] = None,
) -> Footprint:
    """Return the state that the optimizer keeps for every block of the model. The first answer takes some seconds."""
    return _count(state.services.footprints, lambda: plan_question(model, optimizer, rank_ratio, state_dtype))


def _count(footprints: Footprints, ask: Callable[[], FootprintQuestion]) -> Footprint:
    """Return the answer to the question, or the problem that says why there is none."""
    try:
        question = ask()
        footprint = footprints.count(question)
    except KeyError as error:
        raise NotFoundError(str(error.args[0])) from None
    except ValueError as error:
        raise RefusedError(422, "invalid", f"{error}; {_KNOWN}") from None
    if footprint is None:
        raise RefusedError(503, "busy", f"{question.model} is still being counted; ask again", {"Retry-After": "2"})
    return footprint


_KNOWN = (
    f"rank_ratio is one of {', '.join(map(str, RANK_RATIOS))}, state_dtype one of {', '.join(STATE_DTYPES)}, "
    f"ranks one of {', '.join(map(str, RANKS))}"
)


@router.get("/datasets")
def datasets(state: State) -> Page[DatasetInfo]:
    """List the datasets of the catalog, and own ones that are prepared here."""
    return Page(items=dataset_infos(data_catalog.DATASETS, state.services.specifications.prepared_texts()))
