"""Findings: what evidence says about a claim, in one word and one sentence, never more than its scale supports."""

import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from pydantic import Field

from orchestrator.analysis.statistics import quantile_growth, widen
from orchestrator.analysis.verdicts import interval_words
from orchestrator.records import Difference, Interval
from orchestrator.studies.evidence import (
    CandidateOutcome,
    Evidence,
    PartEvidence,
    RunOutcome,
    StudyScale,
    machine_sentences,
)
from worker.records.result import Finite, Record, Verdict
from worker.words import pluralize

MARGIN_NATS = 0.01
"""How much above AdamW counts as on par; tuned optimizers differ by 0.002 to 0.013. The paper calls 0.035 on par
(table 1: 2.997 against 2.962)."""
STATE_TOLERANCE = 0.01
"""Of AdamW's state: the paper gives whole percents, of models whose exact sizes it does not give."""
SCALE_WORDS = {
    StudyScale.TINY: "On a model of about a million parameters: no evidence for a large one.",
    StudyScale.MIDDLE: "On models below a million parameters, with 20 tokens for each: larger ones may differ.",
    StudyScale.PAPER: "",
}


class ClaimVerdict(StrEnum):
    """One word on a claim."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    """The interval leaves both open."""
    BEYOND = "cannot be said at this scale"
    MISSING = "no result yet"
    WITHDRAWN = "withdrawn"
    """It was published, and says what is not so."""

    def is_verdict(self) -> bool:
        """Whether it says something about the claim that still stands."""
        return self not in (ClaimVerdict.MISSING, ClaimVerdict.WITHDRAWN)


class Measure(Record):
    """One figure of a finding, with its interval and the paper's."""

    name: str
    value: Finite | None
    low: Finite | None = None
    high: Finite | None = None
    n: int | None = None
    claimed: Finite | None = None
    """The paper's figure for it; null where it gives none."""
    note: str = ""


class Judgement(Record):
    """What a study's judge says about its evidence, at whatever scale that is."""

    measured: ClaimVerdict
    sentence: str
    measures: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = ()


class Finding(Record):
    """A judgement with what its scale lets it say about the claim."""

    answer: ClaimVerdict
    """About the paper's claim."""
    measured: ClaimVerdict
    """About what was run."""
    sentence: str
    judged: str = Field(default="", exclude=True)
    """The sentence of the judgement alone, without what the scale takes away; in no JSON."""
    measures: tuple[Measure, ...]
    notes: tuple[str, ...]
    machines: tuple[str, ...]

    def answer_words(self) -> str:
        """`does not hold for small models`: the answer, and whom it is about where no larger models were trained."""
        decides = self.answer in (ClaimVerdict.HOLDS, ClaimVerdict.IN_PART, ClaimVerdict.FAILS)
        of_small_ones = decides and self.sentence.endswith(SCALE_WORDS[StudyScale.MIDDLE])
        return f"{self.answer.value}{' for small models' if of_small_ones else ''}"


def finding(judgement: Judgement, evidence: Evidence, *, about_large_models: bool) -> Finding:
    """What may be said: of a claim about large models nothing, as long as only tiny ones were trained for minutes; of a
    difference to what was not tuned to its end nothing either."""
    judgement = _cap_at_undecided(judgement, untuned_baselines(evidence))
    is_limited = about_large_models and judgement.measured is not ClaimVerdict.MISSING
    limits = SCALE_WORDS[evidence.scale] if is_limited else ""
    return Finding(
        answer=ClaimVerdict.BEYOND if limits and evidence.scale is StudyScale.TINY else judgement.measured,
        measured=judgement.measured,
        sentence=f"{judgement.sentence} {limits}".rstrip(),
        judged=judgement.sentence,
        measures=judgement.measures,
        notes=judgement.notes,
        machines=machine_sentences(evidence.machines),
    )


def withdrawn(evidence: Evidence) -> Finding | None:
    """Of a result that was taken back: the reason instead of a judgement, and none of its figures; None of others."""
    if evidence.withdrawn is None:
        return None
    word, machines = ClaimVerdict.WITHDRAWN, machine_sentences(evidence.machines)
    return Finding(answer=word, measured=word, sentence=evidence.withdrawn, measures=(), notes=(), machines=machines)


def untuned_baselines(evidence: Evidence) -> tuple[str, ...]:
    """What others are held against, where its best rate is at the edge of its grid: a better one lies beyond."""
    return tuple(
        f"{each.title} ({part.name}) is at the edge of its grid, lr {each.best_lr:g}"
        for part in evidence.parts
        for each in part.candidates
        if each.is_baseline and each.edge_of_grid and each.best_lr is not None and len(part.candidates) > 1
    )


def _cap_at_undecided(judgement: Judgement, untuned: tuple[str, ...]) -> Judgement:
    if not untuned or judgement.measured is ClaimVerdict.MISSING:
        return judgement
    notes = (f"Nothing is decided against what is not tuned: {'; '.join(untuned)}.", *judgement.notes)
    return judgement.model_copy(update={"measured": ClaimVerdict.UNDECIDED, "notes": notes})


def missing(what: str) -> Judgement:
    """Nothing can be judged, and why."""
    return Judgement(measured=ClaimVerdict.MISSING, sentence=f"No verdict: {what}.")


def unreadable(fault: str) -> Finding:
    """There is a result, and nobody can read it."""
    return Finding(
        answer=ClaimVerdict.MISSING, measured=ClaimVerdict.MISSING, sentence=fault, measures=(), notes=(), machines=()
    )


def incomplete(evidence: Evidence, names: Iterable[str]) -> Judgement | None:
    """A judgement where parts of the study were not run, or have not ended; None where all is there."""
    absent = [name for name in names if evidence.part(name) is None]
    if absent:
        return missing(f"not run yet: {', '.join(absent)}")
    going = [part.name for part in evidence.parts if not part.complete]
    return missing(f"runs of {', '.join(going)} have not ended") if going else None


def all_hold(answers: Iterable[ClaimVerdict]) -> ClaimVerdict:
    """Of a claim with several parts that must all hold."""
    found = list(answers)
    if not found:
        return ClaimVerdict.MISSING
    if all(each is ClaimVerdict.HOLDS for each in found):
        return ClaimVerdict.HOLDS
    if ClaimVerdict.FAILS in found:
        return ClaimVerdict.IN_PART if ClaimVerdict.HOLDS in found else ClaimVerdict.FAILS
    return ClaimVerdict.IN_PART if ClaimVerdict.IN_PART in found else ClaimVerdict.UNDECIDED


def all_hold_together(answers: Callable[[int], Iterable[ClaimVerdict]], tests: int) -> ClaimVerdict:
    """Of a claim whose parts are judged by several intervals, of different models for instance. `answers`: those of all
    parts, each by an interval that is one of so many more (`widen`).

    That all hold is said where each does by its own 95 % interval: whichever part is false, its interval alone says so
    falsely in 5 % of cases, and the others can only forbid it (R. L. Berger, Technometrics 24, 1982). That one does not
    hold could be any one's chance, so that all else is said by intervals that hold together (Bonferroni's; Holm's
    procedure finds a first one where these do)."""
    alone = list(answers(1))
    if tests == 1 or all(each is ClaimVerdict.HOLDS for each in alone):
        return all_hold(alone)
    return all_hold(answers(tests))


def together_notes(tests: int, measured: ClaimVerdict) -> tuple[str, ...]:
    """What is said beside the figures of `all_hold_together`."""
    if tests == 1 or measured is ClaimVerdict.HOLDS:
        return ()
    return (
        "The intervals shown are of 95 %. Because not all of them support the claim, each figure is judged by a wider "
        f"one, at 0.05 / {tests}; these hold together, so that no true claim fails by the chance of a single figure.",
    )


def lies_within(bounds: tuple[float, float], lowest: float = -math.inf, highest: float = math.inf) -> ClaimVerdict:
    """Whether an interval says that a figure lies within limits: all of it does, or all of it lies beyond one."""
    low, high = bounds
    if lowest <= low and high <= highest:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.FAILS if high < lowest or low > highest else ClaimVerdict.UNDECIDED


def loss_bounds(candidate: CandidateOutcome, tests: int = 1) -> tuple[float, float]:
    """Between what a candidate's loss minus the baseline's lies, by an interval that is one of `tests` times as many.
    One that lost runs is as bad as any, unless the baseline lost some as well; beyond the edge of its grid it may be
    lower by any amount; without an interval nothing is known."""
    if candidate.lost:
        return -math.inf if candidate.baseline_lost else math.inf, math.inf
    found = None if candidate.difference is None else widen(candidate.difference, tests)
    low, high = (None, None) if found is None else (found.low, found.high)
    return -math.inf if low is None or candidate.edge_of_grid else low, math.inf if high is None else high


def speed_up_bounds(candidate: CandidateOutcome, tests: int = 1) -> tuple[float, float]:
    """Between what a candidate's speed-up lies. Whoever is shown to end above the baseline takes more tokens than it
    for its loss; beyond the edge of its grid a candidate may get there sooner by any factor."""
    if candidate.lost:
        return 0.0, math.inf if candidate.baseline_lost else 0.0
    low, high = 0.0, math.inf
    apart, found = candidate.difference, candidate.speed_up
    if apart is not None and found is not None:
        low, high = found.low or 0.0, found.high or math.inf
        if tests > 1:  # a ratio: its logarithm is what grows, about a figure that is known
            growth, mean = quantile_growth(found.n, apart.comparisons, tests), found.mean
            low, high = (mean * (edge / mean) ** growth for edge in (low, high)) if mean else (0.0, math.inf)
    high = math.inf if candidate.edge_of_grid else high
    return low, min(high, math.nextafter(1.0, 0.0)) if loss_bounds(candidate, tests)[0] > 0 else high


def differs_within(candidate: CandidateOutcome | None, lowest: float, highest: float, tests: int = 1) -> ClaimVerdict:
    """Whether a candidate's loss minus the baseline's lies within limits: the whole interval must say so, as one of
    `tests` times as many."""
    if candidate is None or (candidate.loss is None and not candidate.lost):
        return ClaimVerdict.MISSING
    return lies_within(loss_bounds(candidate, tests), lowest, highest)


def is_on_par(candidate: CandidateOutcome | None, tests: int = 1, *, margin: float = MARGIN_NATS) -> ClaimVerdict:
    """Whether a candidate is no worse than the baseline by more than the margin."""
    return differs_within(candidate, -math.inf, margin, tests)


def worse(candidate: CandidateOutcome | None, tests: int = 1) -> ClaimVerdict:
    """Whether a candidate is worse than the baseline, by the corrected test, as one of `tests` times as many; a
    diverged one is, where the baseline's runs did not."""
    if candidate is None or (candidate.loss is None and not candidate.lost):
        return ClaimVerdict.MISSING
    low, high = loss_bounds(candidate, tests)
    return ClaimVerdict.HOLDS if low > 0 else ClaimVerdict.FAILS if high < 0 else ClaimVerdict.UNDECIDED


def better(candidate: CandidateOutcome | None, tests: int = 1) -> ClaimVerdict:
    """Whether a candidate is better than the baseline, by the corrected test, as one of `tests` times as many."""
    return opposite(worse(candidate, tests))


def no_lower(candidate: CandidateOutcome) -> ClaimVerdict:
    """Whether a candidate ends no lower than the baseline by more than the margin: the whole interval must say so. It
    does not hold where the candidate is shown to end lower."""
    if lies_within(loss_bounds(candidate), -MARGIN_NATS) is ClaimVerdict.HOLDS:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.FAILS if better(candidate) is ClaimVerdict.HOLDS else ClaimVerdict.UNDECIDED


def nobody_lower(candidates: Sequence[CandidateOutcome], *, among: str, measures: tuple[Measure, ...]) -> Judgement:
    """Whether none of the candidates ends below the baseline. `among`: the words for them, as `3 optimizers …`."""
    lower, unknown = (
        [each for each in candidates if no_lower(each) is wanted]
        for wanted in (ClaimVerdict.FAILS, ClaimVerdict.UNDECIDED)
    )
    compared = [each for each in unknown if loss_bounds(each) != (-math.inf, math.inf)]

    def titles(chosen: Iterable[CandidateOutcome]) -> str:
        return ", ".join(each.title for each in chosen) or "none"

    sentence = (
        f"Of {among}, shown to end below it: {titles(lower)}; not told apart from it to within {MARGIN_NATS} nats: "
        f"{titles(compared)}"
    )
    if without := [each for each in unknown if each not in compared]:
        sentence += f"; without an interval, because runs were lost or are missing: {titles(without)}"
    sentence += "."
    open_or_empty = bool(unknown) or not candidates
    measured = ClaimVerdict.FAILS if lower else ClaimVerdict.UNDECIDED if open_or_empty else ClaimVerdict.HOLDS
    return Judgement(measured=measured, sentence=sentence, measures=measures)


def opposite(answer: ClaimVerdict) -> ClaimVerdict:
    """The answer to the contrary claim."""
    return {ClaimVerdict.HOLDS: ClaimVerdict.FAILS, ClaimVerdict.FAILS: ClaimVerdict.HOLDS}.get(answer, answer)


def differences(part: PartEvidence) -> tuple[Measure, ...]:
    """The paired difference of every candidate to the baseline; negative is better."""
    return tuple(difference(each) for each in part.candidates if not each.is_baseline)


def difference(candidate: CandidateOutcome) -> Measure:
    """A candidate's paired difference to the baseline."""
    if candidate.lost:
        note = f"{pluralize(candidate.lost, 'run')} lost"
        return Measure(name=candidate.title, value=None, note=note)
    found = candidate.difference
    return measure(candidate.title, found, note="best rate at the end of those tried" if candidate.edge_of_grid else "")


def measure(name: str, found: Interval | Difference | None, *, claimed: float | None = None, note: str = "") -> Measure:
    """A figure with its interval."""
    if found is None:
        return Measure(name=name, value=None, claimed=claimed, note=note or "no finite value")
    return Measure(name=name, value=found.mean, low=found.low, high=found.high, n=found.n, claimed=claimed, note=note)


def speed_up_measure(name: str, candidate: CandidateOutcome, claimed: float | None = None) -> Measure:
    """A candidate's speed-up, whose interval may lack an end; where nothing but an end is known, a note says which."""
    found, note = candidate.speed_up, "no speed-up is shown"
    if found is not None and found.mean is not None:
        return Measure(name=name, value=found.mean, low=found.low, high=found.high, n=found.n, claimed=claimed)
    if found is not None:
        note = f"above {found.low:.2f} times" if found.high is None else f"below {found.high:.2f} times"
    return Measure(name=name, value=None, claimed=claimed, note=note)


def lies_above(found: Measure, limit: float) -> ClaimVerdict:
    """Whether a figure lies above a limit: its whole interval, or the value that several runs have in common."""
    if found.value is None or (found.n or 0) < 2:
        return ClaimVerdict.UNDECIDED
    low = found.value if found.low is None else found.low
    high = found.value if found.high is None else found.high
    return ClaimVerdict.HOLDS if low > limit else ClaimVerdict.FAILS if high < limit else ClaimVerdict.UNDECIDED


def figure_sentence(found: Measure, digits: int = 3, unit: str = "") -> str:
    """`AdaPM +0.012 nats (+0.003 to +0.021)`."""
    if found.value is None:
        return f"{found.name}: {found.note}"
    interval = interval_words(found.low, found.high, lambda value: f"{value:.{digits}f}")
    return f"{found.name} {found.value:.{digits}f}{unit}{interval and f' ({interval})'}"


def ended_well(runs: Iterable[RunOutcome]) -> tuple[RunOutcome, ...]:
    """The runs with a trained model."""
    return tuple(run for run in runs if run.ended == Verdict.CONVERGED and run.loss is not None)


def count_lost(runs: Iterable[RunOutcome]) -> int:
    """Those that diverged or ran out of memory."""
    return sum(run.ended in (Verdict.DIVERGED, Verdict.OUT_OF_MEMORY) for run in runs)


def state_share(part: PartEvidence, optimizer: str, claimed: float) -> Measure | None:
    """An optimizer's state by AdamW's, beside the claimed share; None where either was not counted."""
    mine, adamw = part.candidate(optimizer), part.candidate("adamw")
    if mine is None or adamw is None or not mine.state_bytes or not adamw.state_bytes:
        return None
    share = mine.state_bytes / adamw.state_bytes
    return Measure(name=f"{mine.title}, optimizer state by AdamW's", value=share, claimed=claimed)


def judge_with_state(
    trained: ClaimVerdict, share: Measure | None, sentence: str, measures: tuple[Measure, ...]
) -> Judgement:
    """A claim with two halves: it trains as well, and its state is no larger a share of AdamW's than claimed. Whoever
    trains worse proves nothing by saving."""
    if share is None or share.value is None or share.claimed is None:
        return missing("the state of an optimizer was not counted")
    saves = ClaimVerdict.HOLDS if share.value <= share.claimed + STATE_TOLERANCE else ClaimVerdict.FAILS
    return Judgement(
        measured=trained if trained is ClaimVerdict.FAILS else all_hold((trained, saves)),
        sentence=f"{sentence}; with {share.value:.1%} of its optimizer state, where the paper has {share.claimed:.0%}.",
        measures=(*measures, share),
    )


def on_par_with_adamw(
    optimizer: str, part_name: str, *, against: str, most_state: float
) -> Callable[[Evidence], Judgement]:
    """The judge of whether an optimizer ends on par with AdamW, with at most that share of its state."""

    def judge(evidence: Evidence) -> Judgement:
        if lacking := incomplete(evidence, [part_name]):
            return lacking
        (part,) = evidence.parts
        mine = part.candidate(optimizer)
        if mine is None:
            return missing("a candidate is missing")
        sentence = f"{against}: {figure_sentence(difference(mine))}"
        return judge_with_state(is_on_par(mine), state_share(part, optimizer, most_state), sentence, differences(part))

    return judge
