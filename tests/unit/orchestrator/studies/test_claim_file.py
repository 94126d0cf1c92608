"""Claims as files: read strictly, judged by their bounds, registered before anything is trained."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.estimator import paired_difference
from orchestrator.analysis.statistics import mean_interval
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.studies.claim_file import (
    ClaimDesign,
    ClaimedBound,
    ClaimError,
    claim_path,
    read_claim,
    register_claim,
    registered_claims,
)
from orchestrator.studies.evidence import CandidateOutcome, Evidence, PartEvidence, StudyScale
from orchestrator.studies.findings import ClaimVerdict
from orchestrator.studies.registry import CLAIMS, all_studies, study
from orchestrator.studies.study import Study
from tests.factories.comparison import Outcome
from tests.factories.evidence import DIVERGED, made_evidence

TINY = StudyScale.TINY
TEXT = """
name: sgd-keeps-nothing
title: Plain SGD
question: Does plain SGD keep up without any state?
claim: It ends no worse than AdamW.
source: nobody
candidates:
  - {optimizer: adamw}
  - {optimizer: lion, learning_rates: [0.001, 0.002, 0.004]}
baseline: adamw
expect:
  - {candidate: lion, quantity: loss_difference, at_most: 0.01}
  - {candidate: lion, quantity: state_share, at_most: 0.51}
scales:
  tiny: {models: [gpt2-tiny]}
"""
STATE = "{candidate: lion, quantity: state_share, at_most: 0.51}"
BASE = (2.5, 2.52, 2.48, 2.51, 2.49)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return path


def written(tmp_path: Path, old: str, new: str) -> Path:
    assert old in TEXT
    path = tmp_path / "other.yaml"
    path.write_text(TEXT.replace(old, new))
    return path


def ends(name: str, change: float | None) -> dict[str, list[Outcome]]:
    """Of all candidates, so far above or below the baseline that there is no doubt; None: nobody can say."""
    spec = study(name).plans[TINY].parts[0].spec
    assert isinstance(spec, ComparisonSpec)
    claim = read_claim(CLAIMS / f"{name}.yaml")
    found: dict[str, list[Outcome]] = {}
    for candidate in spec.names():
        bound = next((each for each in claim.expect if each.candidate == candidate), None)
        wanted = -1.0 if bound is not None and bound.at_most is not None else 1.0
        moved = [loss + (change or 0.0) * wanted + 0.0005 * (place % 2) for place, loss in enumerate(BASE)]
        found[candidate] = [*moved] if change is not None else [2.5, 2.9, 2.1, 2.7, 2.3]
    return found | {spec.baseline_name(): [*BASE]}


OF_LOSSES = [
    path.stem
    for path in sorted(CLAIMS.glob("*.yaml"))
    if all(each.quantity != "speed_up" for each in read_claim(path).expect)
]


@pytest.mark.parametrize("name", OF_LOSSES)
def test_shipped_claims_hold_fail_and_stay_open_where_they_should(name: str) -> None:
    claim = read_claim(CLAIMS / f"{name}.yaml")
    shares = {each.candidate: each.at_most for each in claim.expect if each.is_counted() and each.at_most}

    def measured(change: float | None) -> ClaimVerdict:
        return study(name).judge(made_evidence(study(name), ends(name, change), state_shares=shares)).measured

    assert measured(0.3) is ClaimVerdict.HOLDS
    assert measured(-0.3) is ClaimVerdict.FAILS, "and no saving of memory makes up for it"
    assert measured(None) is ClaimVerdict.UNDECIDED
    too_large = {candidate: 1.5 * share for candidate, share in shares.items()}
    if too_large:
        evidence = made_evidence(study(name), ends(name, 0.3), state_shares=too_large)
        assert study(name).judge(evidence).measured is ClaimVerdict.IN_PART, "as good, and not as small"


def test_a_shipped_claim_of_speed_holds_fails_and_stays_open_where_it_should() -> None:
    """SOAP is lower and 1.67 times as fast; lower and hardly faster; higher; nobody can say."""
    assert {path.stem for path in CLAIMS.glob("*.yaml")} - {*OF_LOSSES} == {"soap"}

    def measured(soap: Sequence[float]) -> ClaimVerdict:
        return study("soap").judge(made_evidence(study("soap"), {"adamw": BASE, "soap": soap})).measured

    def moved(by: float) -> list[float]:
        return [loss + by + 0.0005 * (place % 2) for place, loss in enumerate(BASE)]

    assert measured(moved(-2.2)) is ClaimVerdict.HOLDS
    assert measured(moved(-0.4)) is ClaimVerdict.IN_PART
    assert measured(moved(0.3)) is ClaimVerdict.FAILS
    assert measured([1.0, 4.0, 1.5, 3.5, 2.0]) is ClaimVerdict.UNDECIDED


@given(
    st.floats(-1, 1), st.floats(-1, 1), st.one_of(st.none(), st.floats(-0.9, 0.9)), st.one_of(st.none(), st.just(0.95))
)
def test_a_bound_is_judged_by_the_whole_interval(one: float, other: float, least: Any, most: Any) -> None:
    low, high = sorted((one, other))
    if least is None and most is None:
        return
    expected = (least if least is not None else most - 1) + 0.01
    bound = ClaimedBound(candidate="a", quantity="loss_difference", at_least=least, at_most=most, expected=expected)
    inside = [value for value in (low, high) if bound.lowest() <= value <= bound.highest()]
    verdict = bound.verdict(low, high)
    assert (verdict is ClaimVerdict.HOLDS) == (len(inside) == 2)
    if verdict is ClaimVerdict.FAILS:
        assert not inside
    assert bound.gap() > 0


def test_who_diverged_ends_above_everybody(file: Path) -> None:
    one = read_claim(file).study()
    found = one.judge(made_evidence(one, {"adamw": BASE, "lion": (DIVERGED,)}, state_shares={"lion": 0.5}))
    assert found.measured is ClaimVerdict.FAILS
    assert "5 runs lost" in found.sentence


MANY = "[gpt2-nano, gpt2-micro, gpt2-tiny, llama-tiny]"


def of_many_models(tmp_path: Path) -> Study:
    """`Lion ends no higher`, on four models."""
    path = written(tmp_path, "at_most: 0.01}", "at_most: 0.0, expected: -0.05}")
    text = path.read_text().replace("[gpt2-tiny]", MANY).replace(f"  - {STATE}\n", "")
    path.write_text(text)
    return read_claim(path).study()


def evidence_of(one: Study, changes: Sequence[float], chance: random.Random) -> Evidence:
    """Of each model, five pairs of losses that differ by so much and noise."""
    parts = []
    for part, change in zip(one.plans[TINY].parts, changes, strict=True):
        base = [2.5 + chance.gauss(0, 0.016) for _ in range(5)]
        lion = [loss + change + chance.gauss(0, 0.005) for loss in base]
        apart = paired_difference(dict(enumerate(lion)), dict(enumerate(base)))
        outcomes = (
            CandidateOutcome(candidate="adamw", title="AdamW", is_baseline=True, loss=mean_interval(base)),
            CandidateOutcome(candidate="lion", title="Lion", loss=mean_interval(lion), difference=apart),
        )
        parts.append(PartEvidence(name=part.name, spec_hash="", complete=True, candidates=outcomes, runs=()))
    return Evidence(study=one.name, scale=TINY, parts=tuple(parts))


def test_a_true_claim_of_many_models_fails_by_chance_in_5_percent_at_most(tmp_path: Path) -> None:
    """Each interval by itself would fail it in 9.6 %: equal optimizers, where 0 is the bound."""
    one, chance = of_many_models(tmp_path), random.Random(0)
    worlds = [evidence_of(one, [0.0] * 4, chance) for _ in range(600)]
    alone = sum(
        any(each.difference is not None and each.difference.is_worse() for part in of.parts for each in part.candidates)
        for of in worlds
    )
    found = [one.judge(of) for of in worlds]
    failed = sum(each.measured in (ClaimVerdict.FAILS, ClaimVerdict.IN_PART) for each in found)
    assert alone > 0.07 * len(worlds)
    assert failed <= 0.05 * len(worlds)
    undecided = next(each for each in found if each.measured is ClaimVerdict.UNDECIDED)
    assert "at 0.05 / 4; these hold together" in undecided.notes[0]


def test_a_claim_of_many_models_holds_by_the_interval_of_each_and_falsely_in_5_percent_at_most(tmp_path: Path) -> None:
    """One model at the bound and the others far below it: none of these can help."""
    one, chance = of_many_models(tmp_path), random.Random(1)
    worlds = [evidence_of(one, [0.0, -0.05, -0.05, -0.05], chance) for _ in range(600)]
    held = sum(one.judge(of).measured is ClaimVerdict.HOLDS for of in worlds)
    alone = sum(each.difference.is_better() for of in worlds for each in of.parts[0].candidates if each.difference)
    assert held == alone
    assert held <= 0.05 * len(worlds)


def test_a_claim_of_many_models_that_is_false_fails(tmp_path: Path) -> None:
    one, chance = of_many_models(tmp_path), random.Random(2)
    assert one.judge(evidence_of(one, [0.05] * 4, chance)).measured is ClaimVerdict.FAILS
    assert one.judge(evidence_of(one, [0.05, -0.05, -0.05, -0.05], chance)).measured is ClaimVerdict.IN_PART


def test_a_speed_up_is_shown_refused_and_left_open(tmp_path: Path) -> None:
    """Who ends above the baseline needs more tokens than it for its loss, and not fewer."""
    path = written(tmp_path, "loss_difference, at_most: 0.01", "speed_up, at_least: 1.2")
    path.write_text(path.read_text().replace(f"  - {STATE}\n", ""))
    one = read_claim(path).study()

    def measured(change: float, noise: float = 0.0005) -> ClaimVerdict:
        lion = [loss + change + noise * (place - 2) for place, loss in enumerate(BASE)]
        return one.judge(made_evidence(one, {"adamw": BASE, "lion": lion})).measured

    assert measured(-1.0) is ClaimVerdict.HOLDS
    assert measured(0.3) is ClaimVerdict.FAILS
    assert measured(0.0, 0.005) is ClaimVerdict.FAILS, "sooner or later, but not by so much"
    assert measured(0.0, 0.5) is ClaimVerdict.UNDECIDED


def test_a_claim_about_bytes_needs_one_run_of_each(tmp_path: Path) -> None:
    path = written(tmp_path, "  - {candidate: lion, quantity: loss_difference, at_most: 0.01}\n", "")
    one = read_claim(path).study()
    assert one.plans[TINY].run_count() == 2
    found = one.judge(made_evidence(one, {"adamw": BASE, "lion": BASE}, state_shares={"lion": 0.5}))
    assert found.measured is ClaimVerdict.HOLDS


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("baseline: adamw", "baseline: sgd", "/baseline"),
        ("candidate: lion", "candidate: sgd", "must be one of lion"),
        ("optimizer: lion", "optimizer: lyon, label: lion", "did you mean lion"),
        ("at_most: 0.01", "at_most: -0.01", "since 0 does not"),
        (", at_most: 0.51", "", "needs a bound"),
        ("at_most: 0.51", "at_most: .inf", "/expect/1/at_most"),
        ("[gpt2-tiny]", "[gpt2-tiny], workload: {}", "/scales/tiny"),
        ("[gpt2-tiny]", "[gpt-5]", "gpt-5"),
        ("source: nobody", "source: nobody\nsource: x", "given twice"),
        ("source: nobody", "proof: none\nsource: x", "unknown field"),
    ],
)
def test_every_fault_says_where_and_what_would_be_right(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ClaimError) as refused:
        read_claim(written(tmp_path, old, new))
    assert said in str(refused.value)


def test_what_is_claimed_does_not_change_once_it_is_registered(file: Path, tmp_path: Path) -> None:
    claim, folder = read_claim(file), tmp_path / "studies"
    register_claim(folder, claim.replace_design(TINY, ClaimDesign(seeds=7)))
    again = read_claim(claim_path(folder, claim.name))
    assert again == claim.replace_design(TINY, ClaimDesign(seeds=7))
    assert [each.name for each in registered_claims(folder)] == [claim.name]
    assert study(claim.name, folder).plans[TINY].parts[0].spec.seeds == (1, 2, 3, 4, 5, 6, 7)
    with pytest.raises(ClaimError, match="another claim of that name"):
        register_claim(folder, read_claim(written(tmp_path, "at_most: 0.01", "at_most: 0.5")))
    claim_path(folder, "broken").write_text("name: [")
    assert len(all_studies(folder)) == len(all_studies()) + 1, "what cannot be read is left out"


def test_bounds_that_hold_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="more than at_least"):
        ClaimedBound(candidate="a", quantity="speed_up", at_least=2.0, at_most=1.0)
    assert ClaimedBound(candidate="a", quantity="speed_up", at_least=2.0).highest() == math.inf


def test_of_two_that_diverged_nobody_ends_above_the_other(file: Path) -> None:
    one = read_claim(file).study()
    ends = (DIVERGED, *BASE[1:])
    found = one.judge(made_evidence(one, {"adamw": ends, "lion": ends}, state_shares={"lion": 0.5}))
    assert found.measured is ClaimVerdict.UNDECIDED


@pytest.mark.parametrize(
    ("bound", "within"), [("at_least: -0.05", "holds"), ("at_most: -0.03, expected: -1.0", "fails")]
)
def test_beyond_an_edge_of_its_grid_a_candidate_may_end_lower(tmp_path: Path, bound: str, within: str) -> None:
    """An interval about zero is kept there, and bounds nothing from below."""
    one = read_claim(
        written(tmp_path, "at_most: 0.01}\n  - {candidate: lion, quantity: state_share, at_most: 0.51}", f"{bound}}}")
    ).study()
    lion = [loss + change for loss, change in zip(BASE, (0.012, -0.008, 0.01, -0.012, 0.004), strict=True)]
    inside = made_evidence(one, {"adamw": BASE, "lion": lion})
    assert one.judge(inside).measured is ClaimVerdict[within.upper()]
    (part,) = inside.parts
    moved = tuple(each.model_copy(update={"edge_of_grid": each.candidate == "lion"}) for each in part.candidates)
    at_edge = inside.model_copy(update={"parts": (part.model_copy(update={"candidates": moved}),)})
    assert one.judge(at_edge).measured is ClaimVerdict.UNDECIDED


def test_a_speed_up_that_is_not_shown_has_an_upper_bound_all_the_same(tmp_path: Path) -> None:
    one = read_claim(written(tmp_path, "loss_difference, at_most: 0.01", "speed_up, at_least: 1.2")).study()
    lower = [loss - 0.001 for loss in BASE]
    lower[0] -= 0.01
    found = one.judge(made_evidence(one, {"adamw": BASE, "lion": lower}, state_shares={"lion": 0.5}))
    assert "times fewer tokens than AdamW 1.001 times (up to 1.004), claimed at least 1.2: does not" in found.sentence
