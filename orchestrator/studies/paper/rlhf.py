"""`rlhf`: reinforcement learning from a reward (ReMax) with AdaPM against AdamW."""

from orchestrator.studies.evidence import Evidence
from orchestrator.studies.findings import (
    Answer,
    Judgement,
    difference,
    differences,
    figure_sentence,
    incomplete,
    missing,
)
from orchestrator.studies.paper.fine_tuning import Setting, both, plans
from orchestrator.studies.study import Study
from worker.spec.task import RlhfTask

PART = "rewards"
MARGIN_REWARD = 0.05
"""How much less reward still counts as similar, of a reward between 0 and 1; the paper shows curves only."""

TINY = Setting(
    task=RlhfTask(answer_tokens=8, reward="printable", kl_weight=0.01),
    length_tokens=24, steps=40, batch_sequences=16, warmup_steps=4, every_steps=20, candidates=both((1e-3,)),
)  # fmt: skip
PAPER = Setting(
    task=RlhfTask(answer_tokens=512, reward="model", kl_weight=0.05),
    length_tokens=1024, steps=500, batch_sequences=64, warmup_steps=20, every_steps=50,
    candidates=both((5e-7, 1e-6, 2e-6)),
)  # fmt: skip


def judge(evidence: Evidence) -> Judgement:
    """AdaPM's reward is not lower than AdamW's by more than the margin."""
    if lacking := incomplete(evidence, [PART]):
        return lacking
    (part,) = evidence.parts
    adapm = part.candidate("adapm")
    if adapm is None or adapm.difference is None:
        return missing("no pair of runs has a reward")
    # A run that lowers the reward is "diverged" for a table of losses; here it is an answer.
    found = adapm.difference
    if found.low is None or found.high is None:
        measured = Answer.UNDECIDED
    else:
        over = found.low > MARGIN_REWARD
        measured = Answer.HOLDS if found.high <= MARGIN_REWARD else Answer.FAILS if over else Answer.UNDECIDED
    sentence = f"Reward that AdaPM lacks against AdamW, of 1 at most: {figure_sentence(difference(adapm))}."
    return Judgement(measured=measured, sentence=sentence, measures=differences(part))


STUDY = Study(
    name="rlhf",
    title="Reinforcement learning from a reward",
    question="Does AdaPM reach AdamW's reward in ReMax?",
    claim="Llama3-8B with ReMax: a reward like AdamW's with 43 % less memory.",
    source="figure 5c",
    plans=plans("rlhf", PART, tiny=TINY, paper=PAPER),
    judge=judge,
    caveats=(
        "The paper names neither its reward model nor its setting; ours has a reward model of drawn weights, at the "
        "tiny scale a rule (printable answers). There both train at one rate, 0.001, that was not tuned.",
    ),
    axis="reward that is lacking against AdamW",
    order=140,
)
