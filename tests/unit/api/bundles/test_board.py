"""A board of bundles: ranked by rules and workload, each verified, of two installations together; pages that load
nothing."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from api.bundles.board import Board, write_board
from api.bundles.publication import write_bundle
from api.bundles.ranking import places_of, rankings_by_rules, rankings_by_workload
from api.bundles.rules import RuleSet, RuleSetError, all_rules, read_rules, shipped_rules
from api.bundles.signing import fingerprint
from api.cli import main
from dashboards.figures.base import Figure
from dashboards.files.vector import VectorFormat, vector
from tests.factories.bundles import EXPERIMENT, KEY, STEPS, Content, renamed, trained_content

THEIRS = Ed25519PrivateKey.from_private_bytes(bytes(range(2, 34)))
OTHER = "q7w2e5r8t1"
OURS_SHORT, THEIRS_SHORT = (fingerprint(key.public_key())[:12] for key in (KEY, THEIRS))
WORKLOAD = {"task": {"kind": "regression", "dimension": 20}, "budget": {"steps": STEPS}}


def publish(folder: Path, content: Content, key: Ed25519PrivateKey = KEY) -> Path:
    write_bundle(folder, content.document, content.attempts, content.files()["points.parquet"], key)
    return folder


def rules(record: dict[str, Any], **more: Any) -> RuleSet:
    fields = {"name": "ours", "title": "A regression", "source": "a test", "workload": WORKLOAD, "record": record}
    return RuleSet.model_validate(fields | more)


PAIRED = rules({"kind": "paired", "baseline": "sgd", "least_seeds": 3})


@pytest.fixture(scope="module", autouse=True)
def _equal_figures_drawn_once() -> Iterator[None]:
    """Boards of the same submissions hold the same figures, a second for each page."""
    drawn: dict[str, bytes] = {}

    def remembered(figure: Figure, form: VectorFormat, **options: Any) -> bytes:
        key = repr((figure, form, options))
        if key not in drawn:
            drawn[key] = vector(figure, form, **options)
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("api.bundles.board.vector", remembered)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of ours, theirs, ours once more from their hands, and one that was tampered with."""
    folder, ours, theirs = tmp_path_factory.mktemp("board"), trained_content(), trained_content(OTHER)
    publish(folder / "ours/one", ours)
    publish(folder / "theirs/two", theirs, THEIRS)
    publish(folder / "theirs/copies/one", ours, THEIRS)
    publish(folder / "theirs/bad", theirs, THEIRS)
    (folder / "theirs/bad/attempts.json").write_text("<script>")
    (folder / "theirs/loop").symlink_to(folder / "theirs")
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Path:
    words = ["board", str(folder / "ours"), str(folder / "theirs"), "-o", str(folder / "site"), "--json"]
    printed = CliRunner().invoke(main, words, catch_exceptions=False)
    assert printed.exit_code == 0
    answer = json.loads(printed.stdout)
    assert answer["submissions"] == 2
    assert answer["refused"] == {str(folder / "theirs/bad"): "digest: attempts.json is not the file that was signed"}
    assert {out["reason"] for out in answer["rules"]["demo"][0]["not_ranked"]} == {
        "workload.task.kind is regression, not pretrain"
    }
    return folder / "site"


def test_both_installations_keep_their_provenance(site: Path) -> None:
    index = (site / "index.html").read_text()
    workloads = index[index.index("All workloads") :]
    rows = re.findall(
        r'<tr><td data-label="Place">(\d)</td>.*?<bdi>(.*?)</bdi>.*?data-label="Signed by">(<code>.*?)</td></tr>',
        workloads,
    )
    assert [(place, title) for place, title, _ in rows] == [
        ("1", "SGD"),
        ("1", "SGD"),
        ("3", "Accelerated SGD"),
        ("3", "Accelerated SGD"),
    ], "the same training on the same machine ends at the same loss"
    assert {tuple(sorted(re.findall(r"<code>(\w+)", signers))) for _, _, signers in rows} == {
        tuple(sorted((OURS_SHORT, THEIRS_SHORT))),
        (THEIRS_SHORT,),
    }
    assert "digest: attempts.json is not the file that was signed" in index
    pages = sorted(page.name for page in site.iterdir())
    assert len(pages) == 3 and pages[-1] == f"{OTHER}-{THEIRS_SHORT}.html"
    both = next(page for page in site.iterdir() if page.name.startswith(EXPERIMENT)).read_text()
    assert all(fingerprint(key.public_key()) in both for key in (KEY, THEIRS))
    assert all((site / page).exists() for page in re.findall(r'href="([^"#]+\.html)', index))


def test_a_submissions_page_says_what_was_verified(site: Path) -> None:
    page = next(site.glob(f"{EXPERIMENT}-*.html")).read_text()
    assert "every figure of the answer follows from the raw content" in page
    assert trained_content().experiment.spec_hash in page
    assert page.count('media="(prefers-color-scheme: dark)"') == 2
    assert "workload.task.kind is regression, not pretrain" in page
    answer = trained_content().document.comparison
    assert answer is not None
    verdict = next(row.verdict for row in answer.rows if row.difference)
    assert verdict.partition(":")[0] in page


def test_pages_are_small_and_load_nothing(site: Path) -> None:
    for page in site.iterdir():
        text = page.read_text()
        assert len(text) < 300_000
        assert "default-src 'none'" in text
        assert "<script" not in text
        assert re.findall(rf'(?:src|srcset|href)="(?!data:|index\.html|{EXPERIMENT}-|{OTHER}-)', text) == []


def boarded(folder: Path, *sets: RuleSet, trusted: tuple[Ed25519PrivateKey, ...] = ()) -> Board:
    return write_board([folder], folder / "site", [fingerprint(key.public_key()) for key in trusted], sets)


def test_who_gives_one_experiment_another_history_is_disputed_until_a_key_is_named(tmp_path: Path) -> None:
    """Trained again under the same id: nobody can tell whose runs are those of the experiment."""
    publish(tmp_path / "one", trained_content())
    publish(tmp_path / "two", trained_content.__wrapped__(), THEIRS)
    found = boarded(tmp_path, PAIRED)
    assert found.submissions == ()
    assert f"has other runs of the experiment {EXPERIMENT}; name the key" in found.refused[str(tmp_path / "one")]
    assert [each.signers for each in boarded(tmp_path, PAIRED, trusted=(THEIRS,)).submissions] == [(THEIRS_SHORT,)]


def test_who_publishes_anothers_trainings_under_another_name_is_disputed(tmp_path: Path) -> None:
    publish(tmp_path / "one", trained_content())
    publish(tmp_path / "two", renamed(trained_content(), "a1b2c3d4e5"), THEIRS)
    found = boarded(tmp_path, PAIRED)
    assert found.submissions == ()
    assert re.search(r"a1b2c3d4e5-\d+ is k3v9m2x710-\d+ of .*one, signed by", found.refused[str(tmp_path / "two")])
    trusted = boarded(tmp_path, PAIRED, trusted=(KEY,))
    assert [each.signers for each in trusted.submissions] == [(OURS_SHORT,)]
    assert "none of the keys that were given" in trusted.refused[str(tmp_path / "two")]


def test_a_bundle_that_is_published_again_is_one_submission(tmp_path: Path) -> None:
    """With a note written since: the newest stands, and both publications are named."""
    ours = trained_content()
    publish(tmp_path / "one", ours)
    later = replace(ours, experiment=ours.experiment.model_copy(update={"labels": ("kept",)}))
    publish(tmp_path / "two", later, THEIRS)
    (found,) = boarded(tmp_path, PAIRED).submissions
    assert len(found.publications) == 2 and set(found.signers) == {OURS_SHORT, THEIRS_SHORT}


EDGE = "its best learning rate is at the end of what was tried"


@pytest.mark.parametrize(
    ("record", "more", "ranked", "reasons"),
    [
        ({"kind": "paired", "least_seeds": 3}, {}, [(1, "asgd"), (1, "asgd")], {EDGE}),
        ({"kind": "paired"}, {}, [], {"it was judged on 3 seeds, and 5 are asked for"}),
        ({"kind": "paired", "baseline": "adamw"}, {}, [], {"its submission holds it against sgd, not against adamw"}),
        (
            {"kind": "paired", "least_seeds": 3, "least_rates": 9},
            {},
            [],
            {r"it was trained at \d learning rates, and 9 are asked for"},
        ),
        ({"kind": "paired"}, {"budget": {"steps": 40}}, [], {"workload.budget.steps is 20, not 40"}),
        ({"kind": "target", "target": 1e3, "margin": 1e2}, {}, [(1, "sgd")] * 2 + [(1, "asgd")] * 2, set()),
        ({"kind": "target", "target": -1.0}, {}, [], {r"Not shown: .* over 3 runs is not below -1\."}),
        ({"kind": "profile", "least_rates": 3, "least_workloads": 1}, {}, [(1, "asgd")], {EDGE}),
        ({"kind": "profile", "least_rates": 3}, {}, [], {EDGE, "the board has 1 such workload, and 2 are asked for"}),
    ],
)
def test_rules_rank_and_say_why_not(
    folder: Path,
    tmp_path: Path,
    record: dict[str, Any],
    more: dict[str, Any],
    ranked: list[tuple[int, str]],
    reasons: set[str],
) -> None:
    own = {} if record["kind"] == "target" else {"baseline": "sgd"}
    ruled = rules(own | record, workload=WORKLOAD | more)
    (found,) = write_board([folder / "ours", folder / "theirs/two"], tmp_path, rules=[ruled]).rankings
    assert [(each.place, each.entry.row.candidate) for each in found.places] == ranked
    told = {each.reason for each in found.not_ranked}
    assert all(any(re.fullmatch(reason, each) for each in told) for reason in reasons), told
    assert all(any(re.fullmatch(reason, each) for reason in reasons) for each in told), told


def test_losses_within_the_noise_share_a_place_and_make_no_record(folder: Path, tmp_path: Path) -> None:
    submissions = write_board([folder / "ours", folder / "theirs/two"], tmp_path, rules=[]).submissions
    (whole,) = rankings_by_workload(submissions)
    assert [each.entry.row.candidate for each in whole.records] == ["sgd"], "an equal loss later is no record"
    for floor, places in ((0.0, [1, 1, 3, 3]), (9.0, [1, 1, 1, 1])):
        ruled = rules({"kind": "target", "target": 1e3, "margin": 1e2}, noise_floor_nats=floor)
        (ranking,) = rankings_by_rules(ruled, submissions)
        entries = [place.entry for place in ranking.places]
        assert [each.place for each in places_of(entries, floor)] == places


def test_who_lost_a_run_has_no_place_and_is_no_record(folder: Path, tmp_path: Path) -> None:
    (whole,) = rankings_by_workload(write_board([folder / "ours"], tmp_path, rules=[]).submissions)
    first, second = (place.entry for place in whole.places)
    assert first.row.final is not None
    lost = first.row.model_copy(update={"final": first.row.final.model_copy(update={"lost": 1})})
    places = places_of([replace(first, row=lost), second], 0.0)
    assert [(each.place, each.entry.row.candidate) for each in places] == [
        (1, second.row.candidate),
        (None, first.row.candidate),
    ]


def test_losses_on_other_data_of_the_same_name_stand_apart(tmp_path: Path) -> None:
    """As the interpreter's own library is another text in another Python."""
    ours = trained_content(OTHER)
    runs = tuple(
        run.model_copy(update={"result": run.result.model_copy(update={"data_hash": "1" * 64})})
        for run in ours.runs
        if run.result is not None
    )
    publish(tmp_path / "one", trained_content())
    publish(tmp_path / "two", replace(ours, runs=runs), THEIRS)
    found = boarded(tmp_path, rules({"kind": "target", "target": 1e3, "margin": 1e2}))
    assert [len(each.places) for each in found.rankings] == [2, 2]
    assert {each.data_hash for each in rankings_by_workload(found.submissions)} == {
        each.data_hash for each in found.rankings
    }


def test_rules_that_ship_are_read_and_those_with_faults_refused(tmp_path: Path) -> None:
    assert {each.name for each in shipped_rules()} == {"algoperf", "demo", "modded-nanogpt-track-3", "tiny-gpt2"}
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ntitle: x\nsource: y\nworkload: {modle: gpt2-tiny}\nrecord: {kind: paired}\n")
    with pytest.raises(RuleSetError, match="/workload/modle"):
        read_rules(file)
    file.write_text(file.read_text().replace("modle", "model"))
    with pytest.raises(RuleSetError, match="/workload/budget: must fix steps"):
        read_rules(file)
    file.write_text(file.read_text().replace("gpt2-tiny}", "gpt2-tiny, budget: {steps: 150}}"))
    assert all_rules([file])[0].workload["model"] == "gpt2-tiny"
    with pytest.raises(RuleSetError, match="two sets of rules are called mine"):
        all_rules([file, file])
    printed = CliRunner().invoke(
        main, ["board", str(tmp_path), "-o", str(tmp_path / "s"), "--rules", str(tmp_path / "no")]
    )
    assert printed.exit_code == 2 and "No such file" in printed.stderr


def test_no_folder_is_refused(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["board", str(tmp_path / "nowhere"), "-o", str(tmp_path / "site")])
    assert (printed.exit_code, printed.stderr) == (2, f"{tmp_path / 'nowhere'} is no folder\n")


def test_a_board_of_refused_bundles_alone_is_a_failure(folder: Path, tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["board", str(folder / "theirs/bad"), "-o", str(tmp_path / "site")])
    assert printed.exit_code == 1 and "0 submissions" in printed.stdout and "refused: " in printed.stderr
