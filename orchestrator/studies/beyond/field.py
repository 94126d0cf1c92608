"""`field` (beyond the paper): AdaPM and AdaPM-mini against the field, at equal tuning."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import CandidateOutcome, Evidence, StudyScale
from orchestrator.studies.findings import MARGIN_NATS, ClaimVerdict, Judgement, better, differences, incomplete, missing
from orchestrator.studies.scales import GPT2, one_part, tuned_comparison
from orchestrator.studies.study import Study

OPTIMIZERS = (
    "adamw", "adapm", "adapm-mini", "muon", "soap", "lion", "apollo", "scale", "fira", "adamw-8bit", "adamw-4bit",
    "schedule-free-adamw",
)  # fmt: skip
NEEDS_TORCHAO = frozenset({"adamw-8bit", "adamw-4bit"})

ON_A_CPU = tuple(name for name in OPTIMIZERS if name not in NEEDS_TORCHAO)


def judge(evidence: Evidence) -> Judgement:
    """No optimizer with at most AdaPM's state is shown to end below it, and each is shown to end no lower by more than
    the margin."""
    if lacking := incomplete(evidence, [GPT2]):
        return lacking
    (part,) = evidence.parts
    mine = part.candidate("adapm")
    if mine is None or mine.loss is None or mine.state_bytes is None:
        return missing("AdaPM has no finite loss")
    rivals = [
        each
        for each in part.candidates
        if not each.is_baseline and each.state_bytes is not None and each.state_bytes <= mine.state_bytes
    ]
    answers = {each.title: _is_not_lower(each) for each in rivals}
    lower, unknown = (
        [title for title, answer in answers.items() if answer is wanted]
        for wanted in (ClaimVerdict.FAILS, ClaimVerdict.UNDECIDED)
    )
    sentence = (
        f"Of {len(rivals)} optimizers with no more state than AdaPM, shown to end below it: "
        f"{', '.join(lower) or 'nobody'}; not told apart from it to within {MARGIN_NATS} nats: "
        f"{', '.join(unknown) or 'nobody'}."
    )
    measured = ClaimVerdict.FAILS if lower else ClaimVerdict.UNDECIDED if unknown or not rivals else ClaimVerdict.HOLDS
    return Judgement(measured=measured, sentence=sentence, measures=differences(part))


def _is_not_lower(rival: CandidateOutcome) -> ClaimVerdict:
    """Whether a rival ends no lower than AdaPM, by more than the margin: its whole interval must say so."""
    if rival.lost:
        return ClaimVerdict.HOLDS
    found = rival.difference
    if found is not None and found.low is not None and found.low >= -MARGIN_NATS:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.FAILS if better(rival) is ClaimVerdict.HOLDS else ClaimVerdict.UNDECIDED


STUDY = Study(
    name="field",
    title="AdaPM and the field",
    question="Is there a memory-efficient optimizer that is better and smaller than AdaPM?",
    claim="Ours to ask: no optimizer with as little state ends at a lower loss than AdaPM.",
    source="beyond the paper",
    plans=one_part(
        tuned_comparison("field", ON_A_CPU, StudyScale.TINY, model="gpt2-tiny", baseline="adapm"),
        tuned_comparison("field", OPTIMIZERS, StudyScale.PAPER, model="gpt2-124m", seeds=(1, 2, 3), baseline="adapm"),
    ),
    judge=judge,
    caveats=(
        scales.NO_STEPS,
        "The tiny scale leaves out 8- and 4-bit AdamW, whose blocks its matrices are too small for.",
    ),
    axis="loss minus AdaPM's, nats",
    order=210,
)
