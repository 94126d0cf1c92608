"""A run of a bundle is trained again: to the bit on the same kind of machine, within the interval elsewhere."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from api.bundles.layout import Bundle, BundleError, read_bundle
from api.bundles.rerun import compare, runs_to_train, train_again
from api.bundles.verification import verify
from tests.factories.bundles import Content, trained_content


@pytest.fixture(scope="module")
def content() -> Content:
    return trained_content()


@pytest.fixture(scope="module")
def bundle(content: Content) -> Bundle:
    return read_bundle(content.files())


def test_a_run_comes_to_the_same_to_the_bit(bundle: Bundle, tmp_path: Path) -> None:
    found = train_again(bundle, runs_to_train(bundle)[-1], tmp_path)
    assert (found.exact, found.told) == (True, "21 points are the same to the bit")


def test_a_loss_that_was_changed_everywhere_is_believed_and_does_not_come_again(
    content: Content, tmp_path: Path
) -> None:
    """What follows from each other was all changed: only training shows it."""
    run = content.runs[-1]
    assert run.result is not None and run.result.final_val_loss is not None
    lower = run.result.final_val_loss - 1e-6
    points = content.points[run.id]
    values = points.values | {"val_loss": points.values["val_loss"].copy()}
    values["val_loss"][-1] = lower
    runs = (
        *content.runs[:-1],
        run.model_copy(update={"result": run.result.model_copy(update={"final_val_loss": lower})}),
    )
    forged = replace(content, runs=runs, points={**content.points, run.id: replace(points, values=values)})
    folder = tmp_path / "bundle"
    folder.mkdir()
    for name, text in forged.files().items():
        (folder / name).write_bytes(text)
    found = verify(folder)
    with pytest.raises(BundleError, match=r"rerun: k3v9m2x710-15: its val_loss is another on the same kind of machine"):
        train_again(found.bundle, found.bundle.runs[-1], tmp_path)


def test_elsewhere_a_loss_has_to_be_where_another_seed_could_be(bundle: Bundle) -> None:
    run = bundle.runs[-1]
    assert run.result is not None and run.result.final_val_loss is not None
    environment = run.result.environment.model_copy(update={"torch": "1.0", "device_name": "abacus"})
    other = run.result.model_copy(update={"environment": environment})
    near = other.model_copy(update={"final_val_loss": run.result.final_val_loss + 1e-3})
    found = compare(bundle, run, near, bundle.points[run.id])
    assert not found.exact
    assert re.search(r"both within \d\.\d{4} of its other seeds, on another .* \(device name, torch\)", found.told)
    forged = run.model_copy(update={"result": run.result.model_copy(update={"final_val_loss": -100.0})})
    with pytest.raises(BundleError, match="it is said to have ended at -100"):
        compare(bundle, forged, near, bundle.points[run.id])
    for loss in (run.result.final_val_loss + 10.0, None):
        far = other.model_copy(update={"final_val_loss": loss})
        with pytest.raises(BundleError, match="not within"):
            compare(bundle, run, far, bundle.points[run.id])
    tuned = bundle.runs[0]
    assert tuned.result is not None
    with pytest.raises(BundleError, match="nothing says how far seeds differ"):
        compare(bundle, tuned, tuned.result.model_copy(update={"environment": environment}), bundle.points[tuned.id])


def test_other_data_is_another_run(bundle: Bundle) -> None:
    run = bundle.runs[-1]
    assert run.result is not None
    other = run.result.model_copy(update={"data_hash": "0" * 64})
    with pytest.raises(BundleError, match="the data here is another"):
        compare(bundle, run, other, bundle.points[run.id])
