"""Judges that studies have in common: each makes a pure function from evidence to a judgement."""

from collections.abc import Callable, Sequence

from orchestrator.studies import probed
from orchestrator.studies.evidence import Evidence
from orchestrator.studies.findings import (
    Judgement,
    all_hold,
    difference,
    differences,
    figure_sentence,
    incomplete,
    is_on_par,
    lies_above,
    missing,
)

Judge = Callable[[Evidence], Judgement]


def on_par_with_adamw(
    optimizer: str, part_name: str, *, against: str, unit: str = "", saved: Callable[[float], str]
) -> Judge:
    """The optimizer ends on par with AdamW. `saved`: words on its state as a share of AdamW's."""

    def judge(evidence: Evidence) -> Judgement:
        if lacking := incomplete(evidence, [part_name]):
            return lacking
        (part,) = evidence.parts
        mine, adamw = part.candidate(optimizer), part.candidate("adamw")
        if mine is None or adamw is None:
            return missing("a candidate is missing")
        words = saved(mine.state_bytes / adamw.state_bytes) if mine.state_bytes and adamw.state_bytes else ""
        sentence = f"{against}: {figure_sentence(difference(mine), unit=unit)}{words}."
        return Judgement(measured=is_on_par(mine), sentence=sentence, measures=differences(part))

    return judge


def roles_above(roles: Sequence[str], limit: float, figure: str) -> Judge:
    """What the probes saw lies above the limit in every one of the roles. `figure`: what it is, for the sentence."""

    def judge(evidence: Evidence) -> Judgement:
        if lacking := incomplete(evidence, [probed.PART]):
            return lacking
        found = probed.mean_over_runs(evidence)
        if any(role not in found for role in roles):
            return missing("no run that ended well was observed")
        told = "; ".join(figure_sentence(each, 2) for each in found.values())
        return Judgement(
            measured=all_hold(lies_above(found[role], limit) for role in roles),
            sentence=f"{figure}, at a tenth of the training: {told}.",
            measures=tuple(found.values()),
        )

    return judge
