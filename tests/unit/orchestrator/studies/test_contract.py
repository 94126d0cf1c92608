"""What every study promises: specs that validate, costs that are stated, and the paper's setting at its scale."""

import re

import pytest

from optim import catalog
from orchestrator.errors import NotFoundError
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.registry import read_spec
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import ClaimVerdict
from orchestrator.studies.registry import all_studies, names, study
from orchestrator.studies.results import OF_AN_EARLIER_VERSION, PUBLISHED, compare_findings
from orchestrator.studies.scales import SEEDS
from orchestrator.studies.study import Plan, Study, StudyPart, device_seconds
from tests.architecture.tree import REPOSITORY
from worker.catalog import presets
from worker.catalog.datasets import DataKind
from worker.catalog.presets import parameter_count
from worker.spec.task import PretrainTask

STUDIES = pytest.mark.parametrize("one", all_studies(), ids=names())
TINY_CORE_MINUTES = 90
"""Of one study, at most: with every grid extended to its end."""


def parts(scale: StudyScale) -> list[tuple[Study, StudyPart]]:
    return [(each, part) for each in all_studies() if scale in each.plans for part in each.plans[scale].parts]


def test_every_study_of_the_paper_is_there() -> None:
    """The tables, figures and theorems of the paper, and questions of our own."""
    assert set(names()) >= {
        "loss-curves", "memory-table", "gpu-hours", "block-partition", "momentum-spectrum", "gradient-sparsity",
        "bias-correction", "rank-and-interval", "adapm-mini", "residual-stationarity", "debias-theorem",
        "momentum-theory", "scaling-law", "sft", "rlhf", "solver", "full-tuning", "own-choices", "field",
        "partition-search",
    }  # fmt: skip


def test_an_unknown_study_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match="there are memory-table"):
        study("nothing")


@STUDIES
def test_a_study_is_complete_at_each_of_its_scales(one: Study) -> None:
    """It has something to do, says what it holds it against, and names its parts apart."""
    assert re.fullmatch(r"[a-z][a-z0-9-]*", one.name)
    assert one.question.endswith("?")
    assert one.claim.endswith(".")
    assert one.source
    assert {StudyScale.TINY, StudyScale.PAPER} <= set(one.plans)
    for plan in one.plans.values():
        assert plan.parts or plan.compute
        assert len({part.name for part in plan.parts}) == len(plan.parts)
        assert plan.compute is None or plan.version


@STUDIES
def test_specs_survive_the_border(one: Study) -> None:
    """Each is what a user could send: written out and read again it is the same experiment."""
    for plan in one.plans.values():
        for part in plan.parts:
            assert read_spec(part.spec.model_dump_json()) == part.spec


@STUDIES
def test_the_tiny_scale_needs_no_gpu_no_download_and_minutes(one: Study) -> None:
    plan = one.plans[StudyScale.TINY]
    assert 60 * plan.device_hours() <= TINY_CORE_MINUTES
    for part in plan.parts:
        assert part.spec.resources.gpus == 0
        assert part.spec.workload.data.dataset in ("python-stdlib", "chats", "drawn")
        assert part.spec.workload.initial_weights is None


@STUDIES
def test_nothing_can_be_said_without_evidence(one: Study) -> None:
    for scale in one.plans:
        judgement = one.judge(Evidence(study=one.name, scale=scale))
        assert judgement.measured is ClaimVerdict.MISSING
        assert judgement.sentence.startswith("No verdict: ")


def test_pretraining_at_the_papers_scale_is_the_papers() -> None:
    """Section 5.1: 512 × 1,024 tokens, cosine after 2,000 steps, clipping 1.0, its data sets, five repetitions."""
    found = [
        (each, part) for each, part in parts(StudyScale.PAPER) if isinstance(part.spec.workload.task, PretrainTask)
    ]
    assert len(found) > 10
    for each, part in found:
        work = part.spec.workload
        assert (work.budget.batch_sequences, work.data.sequence_length_tokens) == (512, 1024), each.name
        assert (work.schedule.shape, work.schedule.warmup_steps) == ("cosine", 2000), each.name
        assert work.clip_grad_norm == 1.0, each.name
        assert work.data.dataset == ("c4" if work.model.startswith("llama") else "openwebtext"), each.name
        assert part.spec.resources.gpus == 1, each.name
    assert len(SEEDS) == 5


@pytest.mark.parametrize("name", ["adamw", "adam-mini", "adapm", "adapm-mini"])
def test_the_papers_hyperparameters_are_what_its_optimizers_get(name: str) -> None:
    """They are the catalog's defaults, and no candidate of a study changes them."""
    expected = {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
    defaults = catalog.entry(name).defaults()
    assert {option: defaults[option] for option in expected} == expected
    changed = {
        option
        for _, part in parts(StudyScale.PAPER)
        for candidate in part.spec.candidates
        if candidate.optimizer == name
        for option in candidate.options
    }
    assert changed & set(expected) == set()


def test_galore_and_adafactor_are_set_as_in_the_paper() -> None:
    galore, adafactor = (catalog.entry(name) for name in ("galore", "adafactor"))
    assert {k: galore.defaults()[k] for k in ("update_gap", "scale", "rank_ratio")} == {
        "update_gap": 200, "scale": 0.25, "rank_ratio": 0.5,
    }  # fmt: skip
    assert {k: adafactor.defaults()[k] for k in ("beta1", "decay_rate", "clip_threshold", "eps2")} == {
        "beta1": 0.9, "decay_rate": -0.8, "clip_threshold": 1.0, "eps2": 1e-3,
    }  # fmt: skip
    assert adafactor.learning_rate == 0.01


def test_theorem_1_is_trained_with_one_sample_a_step() -> None:
    """As it is stated: with more the noise of a step is smaller, and momentum harms less where a <= b."""
    batches = {
        part.spec.workload.budget.batch_sequences
        for plan in study("momentum-theory").plans.values()
        for part in plan.parts
    }
    assert batches == {1}


def test_losses_that_are_compared_are_of_tuned_rates() -> None:
    """Every comparison of several candidates' losses tunes each, by as many trials."""
    timed_or_given = {"gpu-hours", "momentum-theory", "rlhf"}
    for each, part in (found for scale in StudyScale for found in parts(scale)):
        spec = part.spec
        if isinstance(spec, ComparisonSpec) and len(spec.candidates) > 1 and each.name not in timed_or_given:
            assert spec.tuning is not None, each.name


def test_studies_that_ask_for_the_same_share_the_experiment() -> None:
    """Two probes watch the same runs: the key is by content."""
    (first,), (second,) = (
        study(name).plans[StudyScale.TINY].parts for name in ("gradient-sparsity", "momentum-spectrum")
    )
    assert first.key() == second.key()
    keys = {part.key() for _, part in parts(StudyScale.TINY)}
    assert len(keys) == len(parts(StudyScale.TINY)) - 1
    assert all(len(key) <= 100 for key in keys)


def test_costs_grow_with_the_work() -> None:
    tiny, middle, paper = (Plan(parts=study("block-partition").plans[scale].parts) for scale in StudyScale)
    assert 0 < device_seconds(tiny.parts[0].spec) < device_seconds(middle.parts[0].spec) < 3 * 3600
    assert device_seconds(paper.parts[0].spec) > 1000 * 3600


def test_the_middle_scale_gives_each_parameter_20_tokens_and_needs_no_gpu() -> None:
    found = parts(StudyScale.MIDDLE)
    assert {each.name for each, _ in found} >= {"loss-curves", "block-partition", "scaling-law", "own-choices"}
    for each, part in found:
        work = part.spec.workload
        assert work.tokens() >= 20 * parameter_count(presets.preset(work.model)), f"{each.name} {part.name}"
        assert work.tokens() <= 21 * parameter_count(presets.preset(work.model)), f"{each.name} {part.name}"
        assert work.evaluation.sequences >= 1_024
        assert part.spec.resources.gpus == 0
        assert work.data.dataset == "python-stdlib"


def test_published_results_are_small_and_of_studies_that_exist() -> None:
    files = sorted(PUBLISHED.glob("*.json"))
    assert max(path.stat().st_size for path in files) <= 50_000
    assert {path.name.split(".")[0] for path in files} <= set(names())
    for path in files:
        evidence = Evidence.model_validate_json(path.read_bytes())
        assert path.name == f"{evidence.study}.{evidence.scale.value}.json"
        planned = {part.name: part.spec.content_hash() for part in study(evidence.study).plans[evidence.scale].parts}
        assert {part.name for part in evidence.parts} <= planned.keys() or evidence.withdrawn, path.name
        is_of_the_plan = all(planned[part.name] == part.spec_hash for part in evidence.parts if part.name in planned)
        found = compare_findings(study(evidence.study), None, evidence).published
        assert found is not None
        assert (OF_AN_EARLIER_VERSION in found.notes) == (not is_of_the_plan and not evidence.withdrawn), path.name


def test_the_documentation_lists_every_study() -> None:
    text = (REPOSITORY / "docs" / "studies.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z-]+)` \|", text, flags=re.MULTILINE)
    assert listed == list(names())


def test_data_of_every_workload_are_of_its_kind() -> None:
    kinds = {part.spec.workload.task.data_kind for scale in StudyScale for _, part in parts(scale)}
    assert kinds == {DataKind.TEXT, DataKind.CONVERSATIONS, DataKind.DRAWN}
