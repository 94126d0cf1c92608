"""Whether a bundle can be believed: files, signature, raw content, and every figure and sentence derived once more."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

from api.bundles import checks
from api.bundles.layout import (
    DOCUMENT,
    POINTS,
    TABLES,
    Bundle,
    BundleError,
    derive_document,
    raw_files,
    read_bundle,
    read_files,
    record_bytes,
)
from api.bundles.signing import check_signature, predicate
from orchestrator.errors import OrchestratorError
from worker.words import pluralize

CONTENT_CHECKS: Final[Mapping[str, Callable[[Bundle], None]]] = {
    "experiment": checks.check_experiment,
    "points": checks.check_points,
    "runs": checks.check_runs,
    "attempts": checks.check_attempts,
    "plan": checks.check_plan,
    "trainings": checks.check_trainings,
}
"""In this order: each may rely on those before it."""
UNFORESEEN: Final = (
    OrchestratorError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    AssertionError,
)
"""What a content that nobody thought of may bring about: it is refused as well."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was checked of a bundle, and holds."""

    bundle: Bundle
    signer: str
    """The fingerprint of the key that signed it."""
    is_trusted: bool
    """Whether the reader named that key."""
    lines: tuple[tuple[str, str], ...] = field(default_factory=tuple)
    """(check, what holds) in words."""


def verify(folder: Path, trusted: Iterable[str] = ()) -> Verification:
    """Check everything that can be checked without training. Raises `BundleError` with the first reason against it.

    `trusted`: fingerprints of keys, of which one must have signed; without any, every key may have.
    """
    keys = frozenset(trusted)
    files = read_files(folder)
    signer, said = check_signature(files, keys)
    hint = _version_hint(said.get("bench_version"))
    try:
        bundle = read_bundle(files)
    except BundleError as error:
        raise BundleError(error.check, error.reason + hint) from error
    if said != predicate(bundle.document):
        raise BundleError("statement", "it says something else of the experiment than its files do")
    for name, check in CONTENT_CHECKS.items():
        try:
            check(bundle)
        except UNFORESEEN as error:
            raise BundleError(name, f"its content cannot be checked: {type(error).__name__}: {error}{hint}") from error
    _check_derived(bundle, files, hint)
    return Verification(bundle=bundle, signer=signer, is_trusted=bool(keys), lines=tuple(_lines(bundle, files)))


def _version_hint(theirs: object) -> str:
    """Records and sentences may differ between versions of the bench."""
    own = version("adapm-bench")
    return "" if own == theirs else f"; it was written by version {theirs}, and this is {own}"


def _check_derived(bundle: Bundle, files: Mapping[str, bytes], hint: str) -> None:
    """Byte for byte: the answers and their provenance, and the tables."""
    try:
        derived = derive_document(bundle)
    except UNFORESEEN as error:
        raise BundleError("figures", f"no answer follows from the raw content: {error}{hint}") from error
    if record_bytes(derived) != files[DOCUMENT]:
        where = _first_difference(derived.model_dump(mode="json"), bundle.document.model_dump(mode="json"))
        raise BundleError("figures", f"{where} is not what follows from the raw content{hint}")
    expected = raw_files(derived, bundle.attempts, files[POINTS])
    for name in TABLES:
        if expected.get(name) != files.get(name):
            raise BundleError("tables", f"{name} is not the table of this answer{hint}")


def _first_difference(derived: object, said: object, where: str = "document") -> str:
    match derived, said:
        case dict(), dict():
            for key in derived:
                if derived[key] != said.get(key):
                    return _first_difference(derived[key], said.get(key), f"{where}.{key}")
        case list(), list() if len(derived) == len(said):
            for place, (one, other) in enumerate(zip(derived, said, strict=True)):
                if one != other:
                    return _first_difference(one, other, f"{where}.{place}")
    return where


def _lines(bundle: Bundle, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
    runs, results = len(bundle.runs), sum(run.result is not None for run in bundle.runs)
    points = sum(map(len, bundle.points.values()))
    yield "files", f"{pluralize(len(files), 'file')}, and each is the one that was signed"
    yield (
        "raw content",
        f"{pluralize(runs, 'run')}, {pluralize(results, 'result')}, {pluralize(len(bundle.attempts), 'attempt')}, "
        f"{pluralize(points, 'point')} agree",
    )
    if checks.is_planned(bundle):
        planned = "every candidate has the runs that its grid and the tuning rule give, and no other"
        some_failed = "; what would follow a run that failed or was cancelled may be missing"
        yield "tuning", planned + ("" if checks.all_succeeded(bundle.runs) else some_failed)
    yield "figures", "every figure and sentence follows from the raw content, byte for byte"
    yield "not checked", "that the trainings were done: --rerun trains one of them again"
