"""Charts over REST: one metric of several runs, downsampled so that spikes survive."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.records import Page
from api.routes.context import ID_PATTERN, BenchDependency, answered, problems
from orchestrator.columns import FIELDS, STEP
from orchestrator.records import Chart

router = APIRouter(prefix="/points", tags=["points"])

Charts = Page[Chart]

MOST_RUNS = 100
MOST_BUCKETS = 10_000

METRICS = "|".join(name for name in FIELDS if name != STEP)
Metric = Annotated[str, Query(pattern=f"^({METRICS})$", description="A field of a point.")]
RunId = Annotated[str, Query(pattern=ID_PATTERN)]


@router.get("", response_model=Charts, responses=problems(404, 422))
def charts(
    bench: BenchDependency,
    run: Annotated[list[RunId], Query(min_length=1, max_length=MOST_RUNS, description="Once for each run.")],
    metric: Metric,
    buckets: Annotated[int, Query(ge=1, le=MOST_BUCKETS)] = 800,
    after_step: Annotated[int, Query(ge=-1, le=2**53)] = -1,
    until_step: Annotated[int | None, Query(ge=0, le=2**53)] = None,
) -> Response:
    """A metric of up to 100 runs over equal ranges of steps: the lowest, mean and highest value of each range."""
    return answered(Charts(items=bench.charts(run, metric, buckets, after_step=after_step, until_step=until_step)))
