"""`gpu-hours`: the largest micro-batch that a memory cap leaves to each optimizer, and what that does to the speed."""

from orchestrator.analysis.targets import geometric_mean
from orchestrator.studies.result import Figure, PartResult, StudyResult, interval_figure
from orchestrator.studies.study import Numbers, Study, StudyFigures
from worker.records.result import Result, Verdict

HOURS, BATCH = "device-hours by AdamW's", "micro-batch by AdamW's"
BASELINE = "adamw"


def extract(result: Result) -> Numbers:
    """Return micro-batch in sequences, and tokens per second."""
    numbers = {"micro_batch": result.micro_batch_sequences, "tokens_per_second": result.tokens_per_second}
    return {name: float(number) for name, number in numbers.items() if number}


def measure(study: Study, result: StudyResult) -> list[Figure]:
    """Return, under every cap and for each optimizer, the smallest micro-batch over the seeds, and the geometric mean
    of AdamW's tokens per second by its own: the share of AdamW's device-hours that equal tokens take."""
    return [
        figure
        for part in result.parts
        for candidate in dict.fromkeys(run.candidate for run in part.runs)
        if candidate != BASELINE
        for figure in _figures(part, candidate)
    ]


def _figures(part: PartResult, candidate: str) -> tuple[Figure, Figure]:
    batch, baseline_batch = (
        min(_values_by_seed(part, name, "micro_batch").values(), default=None) for name in (candidate, BASELINE)
    )
    batch_texts = [f"{name:g}" if name else "does not fit" for name in (batch, baseline_batch)]
    note = f"micro-batch {batch_texts[0]} against {batch_texts[1]}"
    lost = sum(run.ended in (Verdict.DIVERGED, Verdict.OUT_OF_MEMORY) for run in part.runs_of(candidate))
    speeds, of_adamw = (_values_by_seed(part, name, "tokens_per_second") for name in (candidate, BASELINE))
    shares = [of_adamw[seed] / speeds[seed] for seed in sorted(speeds.keys() & of_adamw.keys())]
    batches = batch / baseline_batch if batch and baseline_batch and not lost else None
    return (
        Figure(metric=BATCH, candidate=candidate, part=part.name, value=batches, note=note),
        interval_figure(
            HOURS, candidate, None if lost else geometric_mean(shares), part=part.name, note="runs lost" if lost else ""
        ),
    )


def _values_by_seed(part: PartResult, candidate: str, name: str) -> dict[int, float]:
    """Return the values by seed of the runs that were trained."""
    return {
        run.seed: run.observed[name] for run in part.runs_of(candidate) if run.ended_well() and name in run.observed
    }


FIGURES = StudyFigures(extract=extract, measure=measure)
