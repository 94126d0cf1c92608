"""`gpu-hours`: the largest micro-batch that a memory cap leaves to each optimizer, and what that does to the speed."""

from orchestrator.analysis.targets import geometric_mean
from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, PartEvidence, StudyScale
from orchestrator.studies.findings import (
    ClaimVerdict,
    Judgement,
    Measure,
    all_hold_together,
    count_lost,
    ended_well,
    incomplete,
    lies_above,
    measure,
    missing,
    opposite,
    together_notes,
)
from orchestrator.studies.study import Numbers, Study, StudyPart
from worker.records.result import Result
from worker.spec.run import Execution

OPTIMIZERS = ("adamw", "adam-mini", "adapm", "adapm-mini")
CAPS_GIB = {StudyScale.TINY: (0.03, 0.06), StudyScale.PAPER: (24.0, 48.0, 80.0)}
"""Of tensors. 48 GiB is an A6000, 80 an H800: the paper's two; 24 a consumer's card."""
PAPER_MODELS = ("llama-350m", "gpt2-1.5b")
CLAIMED_HOURS = {
    "llama-350m": {"adamw": 13.8, "adam-mini": 11.7, "adapm": 11.9, "adapm-mini": 9.8},
    "gpt2-1.5b": {"adamw": 26.67, "adam-mini": 20.32, "adapm": 22.11, "adapm-mini": 17.92},
}
"""Table 2. It does not say on which of its two cards; ours are held against it at 80 GiB."""


def extract(result: Result) -> Numbers:
    """Micro-batch, speed, and hours for the whole budget at that speed."""
    found: Numbers = {}
    if result.micro_batch_sequences is not None:
        found["micro_batch"] = float(result.micro_batch_sequences)
    if result.tokens_per_second:
        found["tokens_per_second"] = result.tokens_per_second
    return found


def _part(scale: StudyScale, model: str, cap: float) -> StudyPart:
    tiny = scale is StudyScale.TINY
    work = scales.workload(
        scale,
        model,
        # Of 128 sequences, which can be cut finely: of 32 every optimizer took the same micro-batch. Speed needs no
        # whole training: at the paper's scale 2,100 steps, 100 of them after the warm-up.
        steps=10 if tiny else 2_100,
        batch_sequences=128 if tiny else None,
        evaluations=5,
        evaluation_sequences=64,
        execution=Execution(micro_batch_sequences="auto", memory_cap_gib=cap),
    )
    chosen = [scales.candidate(scale, model, name) for name in OPTIMIZERS]
    name = f"{cap:g} GiB" if tiny else f"{model}, {cap:g} GiB"
    spec = scales.comparison(scale, f"gpu-hours {name}", work, chosen, baseline="adamw", seeds=scales.FEW_SEEDS)
    return StudyPart(name=name, spec=spec)


def _parts(scale: StudyScale) -> list[StudyPart]:
    models = (scales.TINY_MODEL,) if scale is StudyScale.TINY else PAPER_MODELS
    return [_part(scale, model, cap) for model in models for cap in CAPS_GIB[scale]]


def judge(evidence: Evidence) -> Judgement:
    """Under every cap AdaPM and AdaPM-mini hold at least AdamW's micro-batch, and take fewer hours."""
    if lacking := incomplete(evidence, [part.name for part in STUDY.plans[evidence.scale].parts]):
        return lacking
    measures: list[Measure] = []
    judged: list[tuple[PartEvidence, str]] = []
    told: list[str] = []
    for part in evidence.parts:
        batches = {name: _micro_batch(part, name) for name in OPTIMIZERS}
        told.append(f"{part.name}: " + ", ".join(f"{name} {_words(batch)}" for name, batch in batches.items()))
        for name in OPTIMIZERS[1:]:
            hours = next((h for model, h in CLAIMED_HOURS.items() if part.name == f"{model}, 80 GiB"), None)
            claimed = hours[name] / hours["adamw"] if hours else None
            note = f"micro-batch {_words(batches[name])} against {_words(batches['adamw'])}"
            share = geometric_mean(_shares(part, name))
            measures.append(measure(f"{name}, {part.name}", share, claimed=claimed, note=note))
            if name.startswith("adapm"):
                judged.append((part, name))
    if not any(ended_well(part.runs) for part in evidence.parts):
        return missing("no run was trained under any cap")
    measured = all_hold_together(lambda tests: [_answer(*each, tests) for each in judged], len(judged))
    return Judgement(
        measured=measured,
        sentence=f"Largest micro-batch by cap: {'; '.join(told)}.",
        measures=tuple(measures),
        notes=("Measured: AdamW's tokens a second by the optimizer's, which is the share of its device-hours for equal "
               "tokens; the geometric mean over the seeds.", *together_notes(len(judged), measured)),
    )  # fmt: skip


def _answer(part: PartEvidence, name: str, tests: int) -> ClaimVerdict:
    """Of a candidate under one cap. It does not fit where any of its runs was lost; where AdamW lost some as well,
    nothing is told."""
    batch, baseline = _micro_batch(part, name), _micro_batch(part, "adamw")
    lost, baseline_lost = count_lost(part.runs_of(name)), count_lost(part.runs_of("adamw"))
    if lost:
        return ClaimVerdict.UNDECIDED if baseline_lost else ClaimVerdict.FAILS
    if batch is None or (baseline is None and not baseline_lost):
        return ClaimVerdict.MISSING
    if baseline is None:
        return ClaimVerdict.HOLDS  # it trains where AdamW does not fit
    if batch < baseline:
        return ClaimVerdict.FAILS
    return opposite(lies_above(measure("", geometric_mean(_shares(part, name), tests)), 1.0))


def _micro_batch(part: PartEvidence, candidate: str) -> float | None:
    """The smallest over the seeds; None where none was trained."""
    return min(_observations(part, candidate, "micro_batch").values(), default=None)


def _shares(part: PartEvidence, candidate: str) -> list[float]:
    """AdamW's tokens a second by the candidate's, of each seed."""
    speeds, of_adamw = (_observations(part, name, "tokens_per_second") for name in (candidate, "adamw"))
    return [of_adamw[seed] / speeds[seed] for seed in sorted(speeds.keys() & of_adamw.keys())]


def _observations(part: PartEvidence, candidate: str, name: str) -> dict[int, float]:
    """By seed, of the runs that were trained."""
    return {run.seed: run.observed[name] for run in ended_well(part.runs_of(candidate)) if name in run.observed}


def _words(batch: float | None) -> str:
    return "does not fit" if batch is None else f"{batch:g}"


STUDY = Study(
    name="gpu-hours",
    title="Device-hours under a memory cap",
    question="Does less state let larger micro-batches in, and do they save hours?",
    claim="Llama-350M: 13.8 GPU hours with AdamW, 11.7 with Adam-mini, 11.9 (−14 %) with AdaPM, 9.8 (−29 %) with "
    "AdaPM-mini; GPT-2 1.5B: 26.67, 20.32, 22.11 (−17 %), 17.92 (−33 %); each at its largest batch for a GPU.",
    source="table 2",
    plans=scales.plans(_parts, CAPS_GIB),
    judge=judge,
    extract=extract,
    caveats=(
        "Judged is whether hours are saved, not how many: that depends on the card, and the paper does not say on "
        "which of its two it measured.",
        "Speeds need a machine that does nothing else; micro-batches do not.",
        "A large device stands in for a small one by a cap on its tensors. On a CPU the hours are device-hours (cpu), "
        "and a larger micro-batch saves little there.",
    ),
    axis="device-hours by AdamW's",
    order=15,
)
