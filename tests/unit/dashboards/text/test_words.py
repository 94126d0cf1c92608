"""Words of pages about records, the cost of a run, as lines, and the claims of studies."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dashboards.files import publication
from dashboards.palette import style
from dashboards.text import words
from dashboards.text.costs import lines, perplexity
from dashboards.text.study import HEAD, bound_text, claim_counts
from orchestrator.analysis import verdicts
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import (
    CandidateRow,
    Comparison,
    Conclusion,
    Difference,
    Interval,
    OpenInterval,
    StateCounts,
    TimeToTarget,
)
from orchestrator.studies.claims import Measure
from orchestrator.studies.registry import study
from orchestrator.studies.reports import summary
from tests.architecture.tree import REPOSITORY
from tests.factories.comparison import made_comparison
from tests.factories.specification import made_spec
from tests.factories.stores import result
from worker.records.result import MemoryBreakdown, PeakMemory, Verdict
from worker.spec.run import Workload
from worker.spec.task import PretrainTask


def row(name: str, mean: float | None, *, half: float | None = 0.02, state_bytes: int = 100, **fields) -> CandidateRow:
    """A leaderboard line; its difference to a baseline of 2.4, with an interval that wide."""
    interval = difference = None
    if mean is not None:
        low, high = (None, None) if half is None else (mean - half, mean + half)
        interval = Interval(mean=mean, low=low, high=high, n=1 if half is None else 3)
        if name != "adamw":
            low, high = (None, None) if half is None else (mean - 2.4 - half, mean - 2.4 + half)
            difference = Difference(mean=mean - 2.4, low=low, high=high, n=interval.n, p_value=None)
    update = {
        "candidate": name, "optimizer": name, "title": name.title(), "is_baseline": name == "adamw",
        "val_loss": interval, "difference": difference, "optimizer_state_bytes": state_bytes, "step_seconds": None,
        "conclusion": Conclusion.BASELINE if name == "adamw" else Conclusion.UNDECIDED,
    }  # fmt: skip
    return made_comparison().rows[0].model_copy(update=update | fields)


def comparison(*rows: CandidateRow) -> Comparison:
    """A comparison of those lines, best first."""
    return made_comparison().model_copy(update={"baseline": "Adamw", "rows": rows})


def counts(*, by_verdict: dict[Verdict, int] | None = None, **by_status: int) -> StateCounts:
    """State counts by status name; verdicts are of some that succeeded."""
    return StateCounts(
        total=sum(by_status.values()),
        by_status={RunStatus(name): number for name, number in by_status.items()},
        by_verdict=by_verdict or {},
    )


@pytest.mark.parametrize(
    ("conclusion", "begins"),
    [
        (Conclusion.BETTER, "better, "),
        (Conclusion.WORSE, "worse, "),
        (Conclusion.AS_GOOD, "as good within 0.01 nats, "),
        (Conclusion.UNDECIDED, "undecided, "),
        (Conclusion.UNSTABLE, "unstable, 0 runs lost, "),
    ],
)
def test_headline_is_one_sentence_on_the_best_candidate_beside_the_baseline(conclusion, begins):
    adapm = row("adapm", 2.3, state_bytes=56, step_seconds=0.117, conclusion=conclusion)
    assert adapm.difference is not None
    adapm = adapm.model_copy(update={"difference": adapm.difference.model_copy(update={"margin": 0.01})})
    report = comparison(row("adamw", 2.4, step_seconds=0.1), adapm, row("lion", 2.5))
    assert words.headline_row(report) is adapm, "though the baseline may rank first"
    costs = "with 56 % of Adamw's optimizer state and 17 % slower steps"
    effect = f"loss 0.1000 nats lower than Adamw (95 %: 0.0800 to 0.1200), {costs}"
    assert words.headline(report) == f"{begins}{effect}."
    assert words.headline(report.model_copy(update={"complete": False})) == (
        f"so far {begins}{effect}; some runs are still in progress."
    )


def test_headline_names_the_best_candidate_with_no_more_state_where_the_leader_takes_more():
    muon = row("muon", 2.2, state_bytes=120, conclusion=Conclusion.BETTER)
    scale, lion = (row(name, 2.3, state_bytes=17, conclusion=Conclusion.BETTER) for name in ("scale", "lion"))
    rows = (muon, scale, lion, row("adamw", 2.4, state_bytes=100))
    assert " With no more state, Scale: better, loss 0.1000 nats lower than Adamw" in words.headline(comparison(*rows))
    assert "With no more state" not in words.headline(comparison(*rows[1:]))


def test_headline_of_a_baseline_alone_is_its_loss():
    report = comparison(row("adamw", 2.4), row("adapm", None))
    assert words.headline(report) == "a validation loss of 2.4000; without a loss: Adapm."


def test_no_result_has_no_headline_and_no_rank():
    nothing = comparison(row("adamw", None), row("adapm", None))
    assert words.headline(nothing) == ""
    leaders = words.leaderboard(nothing, {name: style(name) for name in ("adamw", "adapm")})
    assert [leader.rank for leader in leaders] == [None, None]
    assert [leader.whisker for leader in leaders] == [None, None]


def test_whiskers_are_the_intervals_of_the_differences_on_one_scale():
    rows = comparison(row("adamw", 2.4, half=0.1), row("adapm", 2.3, half=0.05), row("lion", 2.5, half=50.0))
    second, third = (
        leader.whisker for leader in words.leaderboard(rows, {n: style(n) for n in ("adamw", "adapm", "lion")})[1:]
    )
    assert second is not None and third is not None
    assert second.low < second.middle < second.high < second.zero < third.middle, "AdaPM's leaves zero out"
    assert second.zero == third.zero
    assert (third.cut_low, third.cut_high, third.low, third.high) == (True, True, 0.0, 100.0)


@pytest.mark.parametrize("apart", [0.0, 0.01, 0.1, 1.0])
def test_whiskers_of_different_widths_look_different(apart):
    """However near the means are: three that were all cut at both ends told nothing."""
    rows = [row("adamw", 2.4), *(row(f"a{n}", 2.0 + n * apart, half=half) for n, half in enumerate((0.08, 0.14, 0.09)))]
    leaders = words.leaderboard(comparison(*rows), {row.candidate: style("adamw") for row in rows})
    drawn = [leader.whisker for leader in leaders if leader.whisker is not None]
    wide = [whisker.high - whisker.low for whisker in drawn]
    assert wide[0] < wide[2] < wide[1]
    assert not any(whisker.cut_low or whisker.cut_high for whisker in drawn)
    assert all(0 <= whisker.low <= whisker.middle <= whisker.high <= 100 for whisker in drawn)


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ({"queued": 4}, "queued"),
        ({"queued": 3, "running": 1}, "running"),
        ({"queued": 3, "succeeded": 1}, "running"),
        ({"succeeded": 4}, "done"),
        ({"succeeded": 3, "failed": 1}, "done, with failures"),
        ({"succeeded": 3, "cancelled": 1}, "cancelled"),
    ],
)
def test_an_experiment_is_known_by_one_word(states, text):
    assert words.experiment_chip(counts(**states)).text == text


def test_a_bar_is_as_full_as_runs_have_ended():
    """Cancelled and stopped early is ended, too: `24/24` beside a bar that is not full would contradict it."""
    parts = words.state_segments(counts(succeeded=2, cancelled=1, queued=1, by_verdict={Verdict.STOPPED_EARLY: 1}))
    assert [(part.tone, part.width) for part in parts] == [("good", 25), ("over", 50), ("wait", 25)]


def facts_of(workload: dict[str, Any], optimizer: str) -> tuple[str, ...]:
    """What the page of an experiment with one run says of its workload."""
    candidates = [{"optimizer": optimizer, "learning_rates": [0.1]}]
    fields = {"name": "short", "workload": workload, "candidates": candidates, "seeds": [1]}
    record = SimpleNamespace(spec=ComparisonSpec.model_validate(fields))
    return words.workload_facts(record)  # type: ignore[arg-type]  # it reads the specification alone


def test_a_regression_is_counted_in_samples_and_computes_in_float64():
    """A precision of fp32 is what its specification says; tokens it has none."""
    facts = facts_of({"task": "regression", "budget": {"steps": 100}}, "sgd")
    assert facts[3:] == ("100 samples per run", "1 seed", "float64"), "samples, and none a parameter"


def test_an_experiment_says_how_long_it_trains_for_its_size():
    """By tokens per parameter: of a byte model 150 steps of 8 × 64 tokens for 81,216 parameters."""
    workload = {
        "model": "gpt2-nano",
        "data": {"dataset": "python-stdlib", "tokenizer": "byte", "sequence_length_tokens": 64},
        "budget": {"steps": 150, "batch_sequences": 8},
    }
    assert "0.95 tokens per parameter" in facts_of(workload, "adamw")


def test_only_a_verdict_that_is_shown_has_a_colour():
    chips = {conclusion: words.verdict_chip(conclusion) for conclusion in Conclusion}
    assert {conclusion: chip.text for conclusion, chip in chips.items()} == verdicts.WORDS
    tones = {conclusion: chip.tone for conclusion, chip in chips.items() if chip.tone != "wait"}
    assert tones == {
        Conclusion.BETTER: "good",
        Conclusion.WORSE: "bad",
        Conclusion.AS_GOOD: "live",
        Conclusion.UNSTABLE: "warn",
    }


@pytest.mark.parametrize(
    ("seconds", "known", "planned", "text"),
    [
        (245.0, 8, 8, "about 4 min 05 s"),
        (120.0, 2, 8, "up to 2 min 00 s"),
        (None, 8, 8, ""),
    ],
)
def test_the_time_left_is_a_bound_while_runs_may_stay_out(seconds, known, planned, text):
    """Known and planned: runs that have not ended, of those that there are and of all that may come."""
    record: Any = SimpleNamespace(  # it reads no more than these
        progress=SimpleNamespace(seconds_left=seconds), counts=counts(succeeded=4, queued=known),
        runs_planned=lambda: 4 + planned,
    )  # fmt: skip
    assert words.time_left(record) == text
    record.counts = counts(succeeded=4)
    assert words.time_left(record) == ""


def test_a_candidate_is_called_by_its_label_else_by_its_optimizers_title():
    assert words.candidate_title("adapm-mini", "adapm-mini") == "AdaPM-mini"
    assert words.candidate_title("rank 20 %", "adapm") == "rank 20 %"
    assert words.candidate_title("gone", "gone") == "gone", "a package that is no longer installed"


@pytest.mark.parametrize(
    ("mean", "low", "high", "text"),
    [
        (8.85, 3.64, 21.4, "8.85× (3.64 to 21.40)"),
        (1.02, None, 1.06, "1.02× (below 1.06)"),
        (None, None, 1.0, "below 1.00×"),
        (None, 1.18, None, "above 1.18×"),
    ],
)
def test_a_speed_up_never_stands_without_its_interval(mean, low, high, text):
    target_time = TimeToTarget(
        reached=5, n=5, steps=None, tokens=None, device_hours=None,
        speed_up=OpenInterval(mean=mean, low=low, high=high, n=5),
    )  # fmt: skip
    adapm = row("adapm", 2.0, time_to_target=target_time)
    assert words.speed_words(adapm).replace("\N{NO-BREAK SPACE}", " ") == f"speed-up {text}"
    assert publication.cells(adapm)[-1] == words.speed_up(adapm)
    assert words.speed_words(row("adamw", 2.0, time_to_target=target_time.model_copy(update={"speed_up": None}))) == ""


def test_without_an_interval_the_seeds_that_got_there_are_counted():
    target_time = TimeToTarget(reached=2, n=3, steps=None, tokens=None, device_hours=None, speed_up=None)
    adapm = row("adapm", 2.0, time_to_target=target_time)
    assert words.speed_words(adapm) == "baseline loss reached by 2 of 3 seeds"
    assert publication.cells(adapm)[-1] == "2 of 3"


CONVERGED = result(final_val_loss=2.1).model_copy(
    update={"optimizer_state_bytes": 6_871_248, "tokens_per_second": 6_400.0}
)


def test_what_does_not_exist_on_the_device_has_no_line() -> None:
    """A CPU has no allocator peak, no MFU and no energy; its time is not a GPU's."""
    figures = dict(lines(CONVERGED, made_spec()))

    assert figures["Optimizer state"] == "6.87 MB"
    assert figures["Device time (cpu)"].startswith("4 s in")
    assert not {"Peak reserved", "Peak NVML process", "MFU", "Energy", "Device time (gpu)", "Micro-batch"} & set(
        figures
    )


def test_perplexity_is_derived_where_the_loss_is_in_nats_per_token() -> None:
    """exp(2.1); a regression has none, and counts samples."""
    spec = made_spec()
    assert dict(lines(CONVERGED, spec))["Perplexity"] == "8.166"
    assert dict(lines(CONVERGED, spec))["Speed"] == "6.40 k tokens/s"

    fields = {"task": "regression", "budget": {"steps": 12}}
    drawn = spec.model_copy(update={"workload": Workload.model_validate(fields)})
    figures = dict(lines(CONVERGED, drawn))
    assert "Perplexity" not in figures
    assert figures["Speed"] == "6.40 k samples/s"
    assert "Perplexity" not in dict(lines(CONVERGED.model_copy(update={"final_val_loss": None}), spec))
    assert perplexity(1e4, PretrainTask()) is None


def test_a_gpus_result_shows_every_figure_with_its_unit() -> None:
    """Each under its own name."""
    plain = CONVERGED
    environment = plain.environment.model_copy(
        update={"device": "cuda", "device_name": "NVIDIA H100 80GB HBM3", "driver": "570.1", "cuda": "13.0"}
    )
    memory = MemoryBreakdown(
        step=2,
        phase="backward",
        micro_batch_sequences=2,
        peak_bytes=15_000_000,
        parameters_bytes=3_000_000,
        gradients_bytes=2_000_000,
        optimizer_state_bytes=6_000_000,
        activations_bytes=3_500_000,
        other_bytes=500_000,
    )
    result = plain.model_copy(
        update={
            "environment": environment,
            "memory_breakdown": memory,
            "micro_batch_sequences": 2,
            "peak_memory": PeakMemory(
                host_rss_bytes=1, host_rss_before_bytes=1, allocator_bytes=15_100_000, nvml_process_bytes=600_000_000
            ),
            "flops_per_second": 4.2e14,
            "model_flops_utilization": 0.42,
            "forward_seconds_median": 0.005,
            "energy_joules": 12_345.6,
            "nvml_note": "NVML lists no processes.",
        }
    )

    figures = dict(lines(result, made_spec()))

    assert figures["Peak memory (tensors)"] == "15.1 MB"
    assert "activations 3.50 MB" in figures["Peak breakdown"] and "other 500 kB (step " in figures["Peak breakdown"]
    assert figures["Peak NVML process"] == "600 MB"
    assert figures["Micro-batch"].startswith("2 of 4")
    assert "forward 5.00 ms" in figures["Step breakdown"]
    assert (figures["Model FLOP/s"], figures["MFU"], figures["Energy"]) == ("420 TFLOP/s", "42 %", "12,346 J")
    assert figures["Device time (gpu)"].startswith("4 s in")
    assert figures["Device"].startswith("cuda: NVIDIA H100") and "570.1" in figures["Device"]
    assert figures["NVML"] == result.nvml_note


@pytest.mark.parametrize(
    ("metric", "least", "most", "words"),
    [
        ("loss_difference", None, 0.01, "at most 0.01 higher"),
        ("loss_difference", None, -0.1, "at least 0.1 lower"),
        ("loss_difference", 0.0, None, "not lower"),
        ("loss_difference", 0.1, None, "at least 0.1 higher"),
        ("loss_difference", -0.01, 0.0, "at most 0.01 lower and not higher"),
        ("loss_difference", -0.01, 0.01, "within 0.01"),
        ("state_share", None, 0.6, "at most 0.6"),
    ],
)
def test_a_bound_on_a_difference_says_which_way(
    metric: str, least: float | None, most: float | None, words: str
) -> None:
    measure = Measure(name="m", value=0.0, metric=metric, at_least=least, at_most=most)
    assert bound_text(measure) == words


@pytest.mark.parametrize(
    ("source", "whose"),
    [
        ("figure 4c", "claims of AdaPM's paper"),
        ("Chen et al. 2023, arXiv 2302.06675, abstract", "of other papers"),
        ("beyond the paper", "our own"),
    ],
)
def test_claims_of_other_papers_are_counted_by_themselves(tmp_path: Path, source: str, whose: str) -> None:
    lion = summary(study("lion"), tmp_path).model_copy(update={"source": source})
    assert claim_counts([lion]) == f"1 of 1 studies have a result; {whose}: 1 supported, 1 contradicted."


def test_a_loss_that_the_summary_tells_stands_in_a_table_of_results() -> None:
    """The summary is written by hand: a result that changes has to change it."""
    pages = [(REPOSITORY / "docs" / name).read_text(encoding="utf-8") for name in ("reproduction.md", "adapm.md")]
    rows = [line for page in pages for line in page.splitlines() if line.startswith("|")]
    losses = re.findall(r"\b0\.\d{3}\b", HEAD)
    assert len(losses) > 5
    assert [loss for loss in losses if not any(loss in row for row in rows)] == []
