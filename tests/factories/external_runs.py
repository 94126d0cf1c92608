"""External runs, as a loop of somebody's own tells of them."""

from collections.abc import Iterable, Mapping

from orchestrator.external_runs import (
    ExternalExperiment,
    ExternalRun,
    ExternalState,
    LinesBatch,
    MetricSummary,
    RunHeader,
    SpoolLine,
)

BEGAN = 1_767_225_600.0


def header(candidate: str = "muon", **fields: object) -> RunHeader:
    """Return the header of a run."""
    defaults: dict[str, object] = {"experiment": "a study", "lr": 0.002, "seed": 1, "started_at": BEGAN}
    return RunHeader.model_validate(defaults | {"candidate": candidate} | fields)


def batch(
    losses: Mapping[int, float], *, first_line: int = 0, part: str = "first", run: RunHeader | None = None
) -> LinesBatch:
    """Lines of losses by step, a second apart."""
    lines = tuple(SpoolLine(at=BEGAN + step, step=step, metrics={"val_loss": loss}) for step, loss in losses.items())
    return LinesBatch(run=run or header(), part=part, first_line=first_line, lines=lines)


EXPERIMENT = ExternalExperiment(
    id="k3v9m2x710", name="a study", created_at=BEGAN, updated_at=BEGAN, key_id=None, runs=0, by_state={}, candidates=()
)


def external_run(
    candidate: str,
    lr: float | None,
    seed: int | None,
    loss: float | None,
    *,
    steps: int = 100,
    tokens: float | None = None,
    state: ExternalState = ExternalState.FINISHED,
    workload: str | None = None,
    began: float = BEGAN,
    **config: float | str,
) -> ExternalRun:
    """Return a run with its last loss; None is one that was not finite."""

    def told(value: float | None) -> MetricSummary:
        return MetricSummary(
            points=2, first_step=1, first=10.0, last_step=steps, last=value, first_at=began, last_at=began
        )

    return ExternalRun(
        id=f"{candidate}-{lr}-{seed}-{began - BEGAN:g}",
        experiment_id=EXPERIMENT.id,
        experiment=EXPERIMENT.name,
        candidate=candidate,
        lr=lr,
        seed=seed,
        workload=workload,
        config=dict(config),
        tags=(),
        source="log",
        state=state,
        started_at=began,
        created_at=began,
        updated_at=began,
        lines=3,
        torn_lines=0,
        metrics={"val_loss": told(loss)} | ({} if tokens is None else {"tokens": told(tokens)}),
    )


def grid(losses: Mapping[str, Mapping[float, Iterable[float]]], **fields: object) -> list[ExternalRun]:
    """Runs of candidates by their rates, seeds 1, 2, 3 and so on; the first candidate began first."""
    return [
        external_run(name, lr, seed, loss, began=BEGAN + number, **fields)  # type: ignore[arg-type]  # whatever is given
        for number, (name, rates) in enumerate(losses.items())
        for lr, seed_losses in rates.items()
        for seed, loss in enumerate(seed_losses, start=1)
    ]
