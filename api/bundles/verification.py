"""Whether a bundle can be believed: files, signature, raw content, and every figure of its answer derived once more.

Sentences are made from the figures when they are shown, so a verified bundle is read in today's words.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from api.bundles import checks
from api.bundles.layout import (
    ANSWERS,
    Bundle,
    BundleError,
    derive_document,
    read_bundle,
    read_files,
    without_sentences,
)
from api.bundles.signing import check_signature, predicate
from orchestrator.errors import OrchestratorError
from orchestrator.export.document import ExperimentDocument
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
ROUNDING: Final = 1e-9
"""Relative: another machine's mathematics library may round a quantile otherwise."""
UNFORESEEN: Final = (
    OrchestratorError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    AssertionError,
)
"""Errors that damaged content raises: the bundle is refused."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was checked of a bundle, and holds."""

    bundle: Bundle
    """With its answer in words."""
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
        bundle = read_bundle(files, said["schema_version"])
    except BundleError as error:
        raise BundleError(error.check, error.reason + hint) from error
    if said != predicate(bundle.document, said["schema_version"]):
        raise BundleError("statement", "it says something else of the experiment than its files do")
    for name, check in CONTENT_CHECKS.items():
        try:
            check(bundle)
        except UNFORESEEN as error:
            raise BundleError(name, f"its content cannot be checked: {type(error).__name__}: {error}{hint}") from error
    bundle = replace(bundle, document=_derive_answer(bundle, hint))
    return Verification(bundle=bundle, signer=signer, is_trusted=bool(keys), lines=tuple(_lines(bundle, files)))


def _version_hint(theirs: object) -> str:
    """Records may differ between versions of the bench."""
    own = version("adapm-bench")
    return "" if own == theirs else f"; it was written by version {theirs}, and this is {own}"


def _derive_answer(bundle: Bundle, hint: str) -> ExperimentDocument:
    """The document with the answer that follows from the raw content; raises `BundleError` where the figures in the
    bundle are others. An answer of an earlier procedure is not held against it."""
    try:
        derived = derive_document(bundle)
    except UNFORESEEN as error:
        raise BundleError("figures", f"no answer follows from the raw content: {error}{hint}") from error
    expected, said = (without_sentences(each).model_dump(mode="json") for each in (derived, bundle.document))
    if bundle.is_earlier:
        said |= {name: expected[name] for name in ANSWERS}
    if (where := _first_difference(expected, said)) is not None:
        raise BundleError("figures", f"{where} is not what follows from the raw content{hint}")
    return derived


def _first_difference(derived: object, said: object, where: str = "document") -> str | None:
    """The place of the first figure that is another one; None where all are the same."""
    pairs: Iterable[tuple[object, object, object]]
    match derived, said:
        case dict(), dict():
            pairs = [(key, derived[key], said.get(key)) for key in derived]
        case list(), list() if len(derived) == len(said):
            pairs = [(place, one, other) for place, (one, other) in enumerate(zip(derived, said, strict=True))]
        case float(), float():
            return None if math.isclose(derived, said, rel_tol=ROUNDING) else where
        case _:
            return None if derived == said else where
    found = (_first_difference(one, other, f"{where}.{key}") for key, one, other in pairs)
    return next((each for each in found if each is not None), None)


def _lines(bundle: Bundle, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
    runs, results = len(bundle.runs), sum(run.result is not None for run in bundle.runs)
    points = sum(map(len, bundle.points.values()))
    yield "files", f"{pluralize(len(files), 'file')}, and each is the one that was signed"
    yield (
        "raw content",
        f"{pluralize(runs, 'run')}, {pluralize(results, 'result')}, {pluralize(len(bundle.attempts), 'attempt')}, "
        f"{pluralize(points, 'point')} agree",
    )
    if bundle.is_earlier:
        yield "tuning", "of an earlier procedure, which is not replayed"
        yield "figures", "the bundle's answer is of an earlier procedure; the one that is shown was computed anew"
    else:
        if checks.is_planned(bundle):
            planned = "every candidate has the runs that its tuning asks for, and no other"
            some_failed = "; what would follow a run that failed or was cancelled may be missing"
            yield "tuning", planned + ("" if checks.all_succeeded(bundle.runs) else some_failed)
        yield "figures", "every figure of the answer follows from the raw content"
    yield "not checked", "that the trainings were done: --rerun trains one of them again"
