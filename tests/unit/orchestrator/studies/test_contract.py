"""Promises of every study: specs that validate, stated costs, and the paper's setting at its scale."""

import pytest

from optim import catalog
from orchestrator.analysis.comparison import evaluation_error
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.registry import ExperimentSpec, read_spec
from orchestrator.studies.claims import ClaimVerdict
from orchestrator.studies.registry import SHIPPED, all_studies, figures_of, names, study
from orchestrator.studies.result import StudyResult, read_result
from orchestrator.studies.study import SHARED_METRICS, Study, StudyScale, experiment_key, identity
from tests.factories.study_results import judged
from worker.catalog import presets
from worker.catalog.presets import parameter_count
from worker.spec.task import PretrainTask

STUDIES = pytest.mark.parametrize("study", all_studies(), ids=names())
TINY_CORE_MINUTES = 150
"""The most core-minutes of one study."""
OWN = "beyond the paper"
"""The source of studies that test no paper's claim."""


def parts(scale: StudyScale) -> list[tuple[Study, str, ExperimentSpec]]:
    return [
        (subject, part, spec)
        for subject in all_studies()
        if scale in subject.scales
        for part, spec in subject.scales[scale].items()
    ]


@STUDIES
def test_a_study_is_complete_at_each_of_its_scales(study: Study) -> None:
    """It has something to do, says what it holds it against, and every claim names a figure that it measures."""
    assert study.question.endswith("?")
    assert study.claim.endswith(".")
    assert StudyScale.TINY in study.scales
    assert StudyScale.PAPER in study.scales or study.source == OWN
    figures = figures_of(study.name)
    for scale in study.scales:
        assert study.scales[scale] or (figures and figures.compute and figures.version)
    assert any(claim.has_bound() for claim in study.claims)
    assert figures is not None or {claim.metric for claim in study.claims} <= set(SHARED_METRICS)


@STUDIES
def test_specs_survive_the_border(study: Study) -> None:
    """Each is what a user could send: written out and read again it is the same experiment."""
    for scale in study.scales:
        for spec in study.scales[scale].values():
            assert read_spec(spec.model_dump_json()) == spec


@STUDIES
def test_the_tiny_scale_needs_no_gpu_no_download_and_minutes(study: Study) -> None:
    assert 60 * study.device_hours(StudyScale.TINY) <= TINY_CORE_MINUTES
    for spec in study.scales[StudyScale.TINY].values():
        assert spec.resources.gpus == 0
        assert spec.workload.data.dataset in ("python-stdlib", "chats", "drawn")
        assert spec.workload.initial_weights is None


@STUDIES
def test_nothing_can_be_said_without_a_result(study: Study) -> None:
    for scale in study.scales:
        assert judged(study, StudyResult(study=study.name, scale=scale)).answer is ClaimVerdict.MISSING


def test_whoever_is_tuned_is_tuned_and_judged_by_the_one_procedure() -> None:
    """Three tuning seeds and ten fresh ones; the error of the validation text is below a third of the margin."""
    tuned = [
        (subject, spec)
        for scale in StudyScale
        for subject, _, spec in parts(scale)
        if isinstance(spec, ComparisonSpec) and spec.tuning is not None
    ]
    assert len(tuned) > 50
    for subject, spec in tuned:
        assert spec.tuning is not None
        if subject.name == "full-tuning":  # a search finds other settings each time
            assert (spec.tuning.method, spec.tuning.replicates, len(spec.seeds)) == ("coordinate", 5, 10)
        else:
            assert (spec.tuning.method, spec.tuning.trials) == ("line", 8), subject.name
            assert (len(spec.tuning.seeds), len(spec.seeds)) == (3, 10), subject.name
        if subject.name != "rlhf":  # whose loss is no cross-entropy
            assert evaluation_error(spec.workload.validation_tokens()) < 0.01 / 3, subject.name


def test_pretraining_at_the_papers_scale_is_the_papers() -> None:
    """Section 5.1: 512 × 1,024 tokens, cosine after 2,000 steps, clipping 1.0, its data sets."""
    pairs = [
        (subject, spec) for subject, _, spec in parts(StudyScale.PAPER) if isinstance(spec.workload.task, PretrainTask)
    ]
    assert len(pairs) > 10
    for subject, spec in pairs:
        work = spec.workload
        assert (work.budget.batch_sequences, work.data.sequence_length_tokens) == (512, 1024), subject.name
        assert (work.schedule.shape, work.schedule.warmup_steps) == ("cosine", 2000), subject.name
        assert work.clip_grad_norm == 1.0, subject.name
        assert work.data.dataset == ("c4" if work.model.startswith("llama") else "openwebtext"), subject.name
        assert spec.resources.gpus == 1, subject.name


@pytest.mark.parametrize("name", ["adamw", "adam-mini", "adapm", "adapm-mini"])
def test_the_papers_hyperparameters_are_what_its_optimizers_get(name: str) -> None:
    """They are the catalog's defaults, and no candidate of a study of a paper's claim changes them."""
    expected = {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
    defaults = catalog.entry(name).defaults()
    assert {option: defaults[option] for option in expected} == expected
    changed = {
        option
        for subject, _, spec in parts(StudyScale.PAPER)
        for candidate in spec.candidates
        if candidate.optimizer == name and subject.source != OWN
        for option in candidate.options
    }
    assert changed & set(expected) == set()


def test_theorem_1_is_trained_with_one_sample_a_step() -> None:
    """As it is stated: with more the noise of a step is smaller, and momentum harms less where a <= b."""
    subject = study("momentum-theory")
    batches = {
        spec.workload.budget.batch_sequences for scale in subject.scales for spec in subject.scales[scale].values()
    }
    assert batches == {1}


def test_losses_that_are_compared_are_of_tuned_rates() -> None:
    """Every comparison of several candidates' losses tunes each, by as many trials."""
    for scale in StudyScale:
        for subject, _, spec in parts(scale):
            if isinstance(spec, ComparisonSpec) and len(spec.candidates) > 1:
                assert spec.tuning is not None or subject.name in ("gpu-hours", "momentum-theory"), subject.name


def test_studies_that_ask_for_the_same_share_the_experiment() -> None:
    """Two probes watch the same runs: the key is by content, whatever the experiment is called."""
    (first,), (second,) = (
        study(name).scales[StudyScale.TINY].values() for name in ("gradient-sparsity", "momentum-spectrum")
    )
    assert experiment_key(first) == experiment_key(second)
    keys = {experiment_key(spec) for *_, spec in parts(StudyScale.TINY)}
    assert len(keys) == len(parts(StudyScale.TINY)) - 1
    assert all(len(key) <= 100 for key in keys)


def test_the_middle_scale_gives_each_parameter_20_tokens_and_needs_no_gpu() -> None:
    assert {subject.name for subject, *_ in parts(StudyScale.MIDDLE)} >= {
        "loss-curves",
        "block-partition",
        "scaling-law",
    }
    for subject, part, spec in parts(StudyScale.MIDDLE):
        work = spec.workload
        parameters = parameter_count(presets.preset(work.model))
        assert 20 * parameters <= work.tokens() <= 21 * parameters, f"{subject.name} {part}"
        assert spec.resources.gpus == 0
        assert work.data.dataset == "python-stdlib"


def test_published_results_are_small_and_of_the_specifications_that_are_there() -> None:
    paths = sorted(SHIPPED.glob("*/result.*.json"))
    assert paths and max(path.stat().st_size for path in paths) <= 50_000
    for path in paths:
        result = read_result(path)
        assert result is not None
        subject = study(result.study)
        assert (path.parent.name, path.name) == (subject.name.replace("-", "_"), f"result.{result.scale.value}.json")
        planned = {part: identity(spec) for part, spec in subject.scales[result.scale].items()}
        assert {part.name: part.identity for part in result.parts} == planned
        assert judged(subject, result).answer is not ClaimVerdict.MISSING
