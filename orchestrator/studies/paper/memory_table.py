"""`memory-table`: table 2's optimizer states, counted over the real optimizers' tensors on `meta`."""

from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import ClaimVerdict, Judgement, Measure, all_hold, missing
from orchestrator.studies.study import Numbers, Plan, Study
from worker.records.footprint import PAPER_STATES

MODELS = ("llama-340m", "gpt2-1.5b")
"""The paper gives its Llama no sizes; `llama-340m` has the parameters that its AdamW figure means."""
OPTIMIZERS = ("adamw", "adam-mini", "adapm", "adapm-mini")
OURS = ("adapm", "adapm-mini")
"""Whose figures the claim is about; AdamW's are what they are held against."""
TOLERANCE = 0.01
"""Of a figure, and of a share of AdamW's state: the paper prints two digits behind the point, of models whose exact
sizes it does not give."""


def compute() -> Numbers:
    """Bytes by `model/optimizer/dtype`."""
    from worker.footprint.count import footprint  # loads torch

    found: Numbers = {}
    for model in MODELS:
        for dtype in ("float32", "bfloat16"):
            options = {} if dtype == "float32" else {"state_dtype": dtype}
            chosen = OPTIMIZERS if dtype == "float32" else ("adapm", "adapm-mini")
            for each in footprint(model, chosen, options).optimizers:
                if each.state_bytes is not None:
                    found[f"{model}/{each.optimizer}/{dtype}"] = float(each.state_bytes)
    return found


def judge(evidence: Evidence) -> Judgement:
    """AdaPM's and AdaPM-mini's states fit into the paper's figures, and save as much of AdamW's, on its models."""
    if not evidence.computed:
        return missing("nothing has been counted")
    measures: list[Measure] = []
    answers: list[ClaimVerdict] = []
    told: list[str] = []
    passed: list[str] = []
    strange: list[str] = []
    for model in MODELS:
        claimed = {each.optimizer: each.gigabytes for each in PAPER_STATES if model in each.models}
        counted = {name: evidence.computed.get(f"{model}/{name}/float32") for name in claimed}
        for name, bytes_counted in counted.items():
            if bytes_counted is None:
                return missing(f"{model} {name} has not been counted")
            gigabytes = bytes_counted / 1e9
            measures.append(_measure(f"{model} {name}", gigabytes, claimed[name]))
            if name not in OURS:
                if abs(gigabytes / claimed[name] - 1) > TOLERANCE:
                    strange.append(f"{model} {name} {_times(gigabytes, claimed[name])}")
                continue
            share, claimed_share = bytes_counted / (counted["adamw"] or 1.0), claimed[name] / claimed["adamw"]
            answers += [_fits(gigabytes / claimed[name] - 1), _fits(share - claimed_share)]
            told.append(
                f"{model} {name} {_times(gigabytes, claimed[name])}, saving {1 - share:.1%} for {1 - claimed_share:.1%}"
            )
            low = evidence.computed.get(f"{model}/{name}/bfloat16")
            if low is not None:
                measures.append(_measure(f"{model} {name}, bf16 state", low / 1e9, claimed[name]))
                if low / 1e9 <= claimed[name]:
                    passed.append(f"{model} {name}")
    if strange:
        sentence = f"Not the paper's models: {', '.join(strange)} of what the paper says, by more than {TOLERANCE:.0%}."
        return Judgement(measured=ClaimVerdict.FAILS, sentence=sentence, measures=tuple(measures))
    measured = all_hold(answers)
    met = sum(each is ClaimVerdict.HOLDS for each in answers)
    within = f"{met} of {len(answers)} figures hold to within {TOLERANCE:.0%}"
    sentence = (
        f"{within}, of states no larger than the paper's and savings no smaller. "
        f"By the paper's figures: {'; '.join(told)}."
    )
    notes = (
        "The difference is the momentum of the value blocks, which the paper's partition keeps whole: 13 % of AdamW's "
        "momentum in all, where the paper speaks of 10 %.",
        f"With state in bf16 {len(passed)} of them pass the paper's float32 figures: {', '.join(passed) or 'none'}.",
    )
    return Judgement(
        measured=measured,
        sentence=sentence,
        measures=tuple(measures),
        notes=notes if measured is ClaimVerdict.IN_PART else (),
    )


def _measure(name: str, gigabytes: float, claimed: float) -> Measure:
    return Measure(name=name, value=gigabytes, claimed=claimed, note=_times(gigabytes, claimed))


def _times(gigabytes: float, claimed: float) -> str:
    return f"{gigabytes / claimed:.2f} times"


def _fits(excess: float) -> ClaimVerdict:
    return ClaimVerdict.HOLDS if excess <= TOLERANCE else ClaimVerdict.FAILS


_PLAN = Plan(compute=compute, version="1")

STUDY = Study(
    name="memory-table",
    title="Memory of optimizer states",
    question="Does AdaPM's state fit into what table 2 says?",
    claim="Llama-350M: Adam 2.72 GB, Adam-mini 1.36, AdaPM 1.48 (−46 %), AdaPM-mini 0.12 (−96 %); GPT-2 1.5B: 12.48, "
    "6.24, 6.98 (−44 %), 0.74 (−94 %), in float32.",
    source="table 2, figure 1b",
    plans={StudyScale.TINY: _PLAN, StudyScale.PAPER: _PLAN},
    judge=judge,
    about_large_models=False,
    axis="optimizer state, GB",
    order=10,
)
