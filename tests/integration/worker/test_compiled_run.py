"""A model that is really compiled (inductor, a C++ compiler) trains from end to end, and resumes to the same losses."""

import shutil
from pathlib import Path

import pytest

from tests.factories.dataset import prepare_made_dataset
from tests.factories.reporters import MemoryReporter, StoppingReporter
from tests.factories.specification import made_spec
from tests.factories.stepper import executed
from worker.errors import RunStoppedError
from worker.models import reset_compiler
from worker.records.result import Point, Verdict
from worker.run import Folders, run

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (shutil.which("g++") or shutil.which("clang++")), reason="install a C++ compiler (apt-get install g++)"
    ),
]

STEPS, STOP_AT = 8, 4


def losses(points: list[Point]) -> list[float]:
    return [point.train_loss for point in points if point.train_loss is not None]


def test_a_compiled_model_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its losses are the plain model's but for rounding; those of the resumed run are the compiled ones to the bit."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    prepare_made_dataset(tmp_path / "datasets")
    spec = executed(made_spec(optimizer="adapm", steps=STEPS), compile=True)
    plain, whole, first, second = MemoryReporter(), MemoryReporter(), StoppingReporter(STOP_AT), MemoryReporter()

    def folders(name: str) -> Folders:
        return Folders(run_folder=tmp_path / name, dataset_folder=tmp_path / "datasets")

    try:
        run(executed(spec), plain, folders("plain"))
        result = run(spec, whole, folders("whole"))
        assert list((tmp_path / "inductor").rglob("*.so")), "nothing was compiled"
        with pytest.raises(RunStoppedError):
            run(spec, first, folders("resumed"))
        resumed = run(spec, second, folders("resumed"))
    finally:
        reset_compiler()

    assert (result.verdict, resumed.resumed_from_step) == (Verdict.CONVERGED, STOP_AT)
    assert losses(whole.points) == pytest.approx(losses(plain.points), rel=1e-4)
    assert losses(first.points) + losses(second.points) == losses(whole.points)
