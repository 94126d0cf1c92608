"""A claim's verdict: within its bounds, outside, or open; and the effect of lost runs, edges and scales."""

import math
from collections.abc import Sequence

import pytest

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import OpenInterval
from orchestrator.studies.claims import ClaimVerdict, Finding, all_claims, verdict_on
from orchestrator.studies.registry import all_studies, figures_of, study
from orchestrator.studies.result import StudyResult
from orchestrator.studies.study import Study, StudyClaim, StudyScale
from tests.factories.comparison import Outcome
from tests.factories.study_results import DIVERGED, judged, made_result

SUPPORTED, CONTRADICTED, UNDECIDED = ClaimVerdict.SUPPORTED, ClaimVerdict.CONTRADICTED, ClaimVerdict.UNDECIDED
BASE = (2.50, 2.52, 2.48)
WIDE = (2.2, 2.9, 2.1, 2.8, 2.5)
"""An interval so wide that nothing can be said."""


def near(change: float) -> tuple[float, ...]:
    """The baseline's losses, moved, with a little spread of their own."""
    return tuple(loss + change + jitter for loss, jitter in zip(BASE, (0.001, -0.001, 0.0), strict=True))


def comparison(subject: Study, scale: StudyScale = StudyScale.TINY) -> ComparisonSpec:
    spec = next(iter(subject.scales[scale].values()))
    assert isinstance(spec, ComparisonSpec)
    return spec


def verdicts(finding: Finding) -> list[ClaimVerdict]:
    return [measure.verdict for measure in finding.measures if measure.verdict is not None]


def of_lion(lion: Sequence[Outcome], adamw: Sequence[Outcome] = BASE, share: float = 0.5) -> Finding:
    result = made_result(study("lion"), {"adamw": adamw, "lion": lion}, state_shares={"lion": share})
    return judged(study("lion"), result)


@pytest.mark.parametrize(
    ("bounds", "interval", "verdict"),
    [
        ({"at_most": 0.01}, (-0.2, 0.009), SUPPORTED),
        ({"at_most": 0.01}, (0.011, 0.2), CONTRADICTED),
        ({"at_most": 0.01}, (0.009, 0.011), UNDECIDED),
        ({"at_least": 1.0}, (1.0, math.inf), SUPPORTED),
        ({"at_least": 1.0}, (0.2, 0.9), CONTRADICTED),
        ({"at_least": -0.01, "at_most": 0.01}, (-0.01, 0.01), SUPPORTED),
        ({"at_least": -0.01, "at_most": 0.01}, (-0.3, -0.2), CONTRADICTED),
        ({"at_least": -0.01, "at_most": 0.01}, (-0.3, 0.2), UNDECIDED),
        ({}, (-0.3, 0.2), None),
        ({"at_least": 1.0, "paper": 1.96}, (3.0, 4.0), SUPPORTED),
    ],
)
def test_the_whole_interval_decides_and_the_papers_figure_does_not(
    bounds: dict[str, float], interval: tuple[float, float], verdict: ClaimVerdict | None
) -> None:
    assert verdict_on(StudyClaim(metric="m", candidate="c", **bounds), *interval) is verdict


@pytest.mark.parametrize(
    ("lion", "verdict"),
    [
        (near(0.005), SUPPORTED),
        ((DIVERGED, 2.5, 2.5), CONTRADICTED),
        ((DIVERGED,), CONTRADICTED),
    ],
)
def test_on_par_is_what_the_whole_interval_says(lion: Sequence[Outcome], verdict: ClaimVerdict) -> None:
    """Within 0.01 nats, or without a trained model on some seeds or all."""
    assert verdicts(of_lion(lion))[0] is verdict


def test_where_each_lost_as_many_runs_nobody_is_shown_to_be_worse() -> None:
    everything_lost = of_lion((DIVERGED,), (DIVERGED,))
    assert verdicts(everything_lost)[0] is UNDECIDED
    assert verdicts(of_lion((DIVERGED, *near(-0.3)[1:]), (DIVERGED, *BASE[1:])))[0] is SUPPORTED
    assert verdicts(of_lion((DIVERGED, *near(0.3)[1:]), (DIVERGED, *BASE[1:])))[0] is CONTRADICTED
    assert verdicts(of_lion(near(0.3), (DIVERGED, *BASE[1:])))[0] is UNDECIDED, "who lost less is not called worse"


def test_state_is_counted_and_needs_no_interval() -> None:
    assert verdicts(of_lion(near(0.0), share=0.5)) == [SUPPORTED, SUPPORTED]
    finding = of_lion(near(0.0), share=0.9)
    assert verdicts(finding) == [SUPPORTED, CONTRADICTED]
    assert finding.measures[1].value == pytest.approx(0.9, abs=0.001)
    assert finding.answer is CONTRADICTED
    assert finding.sentence == "Of 2 claims 1 is supported and 1 is contradicted."
    assert all_claims([]) is ClaimVerdict.MISSING


def at_edge(result: StudyResult, candidate: str) -> StudyResult:
    (part,) = result.parts
    outcomes = tuple(
        outcome.model_copy(update={"edge_of_grid": outcome.candidate == candidate}) for outcome in part.candidates
    )
    return result.model_copy(update={"parts": (part.model_copy(update={"candidates": outcomes}),)})


def test_beyond_the_edge_of_what_was_tuned_a_loss_may_be_lower() -> None:
    """Nothing is better than a baseline there, and a candidate there is not worse."""
    better, worse = (
        made_result(study("lion"), {"adamw": BASE, "lion": near(change)}, state_shares={"lion": 0.5})
        for change in (-0.1, 0.1)
    )
    assert [verdicts(judged(study("lion"), at_edge(better, name)))[0] for name in ("adamw", "lion")] == [
        UNDECIDED,
        SUPPORTED,
    ]
    assert [verdicts(judged(study("lion"), at_edge(worse, name)))[0] for name in ("adamw", "lion")] == [
        CONTRADICTED,
        UNDECIDED,
    ]


def test_a_candidate_is_held_against_another_than_the_baseline_by_the_same_estimator() -> None:
    """Low rank for the values on top of AdaPM's partition: paired by seed."""
    ends = {
        "all full": BASE,
        "Em, O none": near(0.0),
        "AdaPM: Q, K, MLP low": near(0.03),
        "V low too": near(0.18),
    }
    subject = study("block-partition")
    finding = judged(subject, made_result(subject, ends))
    values = finding.measures[2]
    assert values.value == pytest.approx(0.15)
    assert values.low is not None and 0.14 < values.low < 0.15
    assert verdicts(finding) == [SUPPORTED] * 3
    assert values.claimed == 0.146
    cheap = judged(subject, made_result(subject, ends | {"V low too": near(-0.1)}))
    assert verdicts(cheap) == [SUPPORTED, SUPPORTED, CONTRADICTED]


@pytest.mark.parametrize(
    ("change", "speed_up", "verdict"),
    [
        (-1.0, (1.96, 1.9, 2.0), SUPPORTED),
        (-1.0, (30.0, 20.0, 40.0), SUPPORTED),
        (-1.0, (None, 1.18, None), SUPPORTED),
        (-1.0, (1.1, 0.9, 1.3), UNDECIDED),
        (-1.0, None, UNDECIDED),
        (0.5, None, CONTRADICTED),
    ],
)
def test_correction_helps_whatever_the_factor(
    change: float, speed_up: tuple[float | None, ...] | None, verdict: ClaimVerdict
) -> None:
    """1.96 is the paper's figure beside ours; who ends above the baseline is no faster to its loss."""
    subject = study("bias-correction")
    result = made_result(subject, {"corrected": near(change), "uncorrected": BASE})
    open_interval = None if speed_up is None else OpenInterval(mean=speed_up[0], low=speed_up[1], high=speed_up[2], n=3)
    parts = tuple(
        part.model_copy(
            update={
                "candidates": tuple(
                    outcome.model_copy(update={"speed_up": open_interval}) for outcome in part.candidates
                )
            }
        )
        for part in result.parts
    )
    finding = judged(subject, result.model_copy(update={"parts": parts}))
    assert [measure.verdict for measure in finding.measures if measure.metric == "speed_up"] == [verdict] * 2
    claimed = {measure.part: measure.claimed for measure in finding.measures if measure.metric == "speed_up"}
    assert claimed == {"r = 5 %": None, "r = 50 %": 1.96}


def test_every_part_has_its_own_word() -> None:
    subject = study("loss-curves")

    def ends(part: str) -> dict[str, Sequence[Outcome]]:
        adapm = near(0.0 if part == "gpt2-nano" else 0.2)
        losses = near(0.3)
        return {"adamw": BASE, "adapm": adapm, "adam-mini": losses, "adafactor": losses, "galore": losses}

    finding = judged(subject, made_result(subject, ends))
    assert [m.verdict for m in finding.measures if m.candidate == "AdaPM"] == [SUPPORTED, CONTRADICTED]
    assert len(finding.measures) == 8


def test_missing_parts_and_running_ones_leave_no_result() -> None:
    subject = study("bias-correction")
    ends = {"corrected": near(-0.3), "uncorrected": BASE}
    absent = judged(subject, made_result(subject, ends, only=["r = 5 %"]))
    assert absent.answer is ClaimVerdict.MISSING and "r = 50 %" in absent.sentence
    going = judged(subject, made_result(subject, ends | {"corrected": (2.1, None, 2.2)}))
    assert going.answer is ClaimVerdict.MISSING and "r = 5 %" in going.sentence


def test_a_result_of_another_specification_says_so() -> None:
    result = made_result(study("lion"), {"adamw": BASE, "lion": near(0.0)})
    (part,) = result.parts
    changed = result.model_copy(update={"parts": (part.model_copy(update={"identity": "0" * 64}),)})
    (note,) = judged(study("lion"), changed).notes
    assert "earlier version" in note
    assert judged(study("lion"), result).notes == ()


SHARED = [subject for subject in all_studies() if figures_of(subject.name) is None]


@pytest.mark.parametrize("one", SHARED, ids=[subject.name for subject in SHARED])
def test_each_study_of_comparisons_has_worlds_in_which_its_claims_are_true_false_and_open(one: Study) -> None:
    """Losses within each bound, beyond it, and around it."""
    names = [candidate.name() for candidate in comparison(one).candidates]
    baseline = comparison(one).baseline_name()
    claims = {
        claim.candidate: claim
        for claim in one.claims
        if claim.metric == "loss_difference" and claim.has_bound() and claim.candidate in names
    }

    def words(within: float) -> set[ClaimVerdict]:
        """`within`: by how much each loss lies within its bounds."""
        ends: dict[str, Sequence[Outcome]] = {name: BASE if name == baseline else near(0.5) for name in names}
        for name, claim in claims.items():
            middle = [end for end in (claim.at_least, claim.at_most) if end is not None]
            change = sum(middle) / len(middle)
            if len(middle) == 1:
                change += within if claim.at_least is not None else -within
            elif within < 0:
                change -= within
            ends[name] = near(change + (0.3 if claim.against else 0.0))
            if within == 0:
                ends[name] = WIDE
        finding = judged(one, made_result(one, ends))
        return {m.verdict for m in finding.measures if m.metric == "loss_difference" and m.verdict is not None}

    assert claims
    assert words(0.2) == {SUPPORTED}
    assert CONTRADICTED in words(-0.2)
    assert words(0) == {UNDECIDED}
