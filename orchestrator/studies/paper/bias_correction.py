"""`bias-correction`: AdaPM with and without the correction of the low-rank momentum, at two ranks."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import ClaimVerdict, Judgement, better, differences, incomplete, measure, missing
from orchestrator.studies.scales import Variant, ablation, plans
from orchestrator.studies.study import Study, StudyPart

CLAIMED = 1.96
WITH, WITHOUT = "corrected", "uncorrected"
RATIOS = {"r = 5 %": 0.05, "r = 50 %": 0.5}


def _part(scale: StudyScale, name: str, ratio: float) -> StudyPart:
    variants = {
        label: Variant(options={"rank_ratio": ratio, "bias_correction": label == WITH}) for label in (WITHOUT, WITH)
    }
    return ablation(f"bias-correction {name}", variants, scale, baseline=WITHOUT, part=name, evaluations=10)


def judge(evidence: Evidence) -> Judgement:
    """With correction the loss without it is reached earlier, by about the paper's factor at r = 50 %."""
    if lacking := incomplete(evidence, RATIOS):
        return lacking
    measures, answers = [], []
    for part in evidence.parts:
        corrected = part.candidate(WITH)
        if corrected is None or (corrected.loss is None and not corrected.lost):
            return missing(f"no corrected run of {part.name} has a loss")
        claimed = CLAIMED if part.name == "r = 50 %" else None
        measures.append(measure(f"speed-up, {part.name}", corrected.speed_up, claimed=claimed))
        measures += [each.model_copy(update={"name": f"loss change, {part.name}"}) for each in differences(part)]
        answers.append(better(corrected))
    speeds = [each for each in measures if each.name.startswith("speed-up") and each.value is not None]
    told = ", ".join(f"{each.value:.2f} times at {each.name.removeprefix('speed-up, ')}" for each in speeds)
    if all(each is ClaimVerdict.HOLDS for each in answers):
        sentence = f"Correction lowers the final loss at both ranks and reaches the uncorrected one's sooner: {told}."
    else:
        shown = sum(each is ClaimVerdict.HOLDS for each in answers)
        sentence = f"Correction lowers the final loss at {shown} of {len(answers)} ranks; speed-ups: {told or 'none'}."
    high = next((each for each in speeds if each.claimed is not None), None)
    mixed = ClaimVerdict.IN_PART if ClaimVerdict.HOLDS in answers else ClaimVerdict.UNDECIDED
    measured = answers[0] if len(set(answers)) == 1 else mixed
    inside = high is not None and high.low is not None and high.high is not None and high.low <= CLAIMED <= high.high
    if measured is ClaimVerdict.HOLDS and not inside:
        measured = ClaimVerdict.IN_PART
        sentence += f" The paper's factor of {CLAIMED} is not within the interval."
    return Judgement(measured=measured, sentence=sentence, measures=tuple(measures))


STUDY = Study(
    name="bias-correction",
    title="Bias correction",
    question="How much does the correction of the low-rank momentum matter?",
    claim="Without it convergence is about 1.96 times slower, even at r = 50 %.",
    source="figure 4a",
    plans=plans(lambda scale: [_part(scale, name, ratio) for name, ratio in RATIOS.items()]),
    judge=judge,
    caveats=(
        scales.NO_STEPS,
        "Speed-up: the uncorrected run's steps by those after which the corrected one is at its final loss, in "
        "mid-schedule.",
    ),
    axis="times fewer steps; nats",
    order=50,
)
