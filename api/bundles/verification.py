"""Whether a bundle can be believed: its files, its signature, and every figure recomputed by the bench's own `compare`.

    files ─► signature ─► specification, runs and points ─► `Analysis`, as in a service ─► figure by figure
                                                                       the stored one ◄──┘

Sentences are worded from the recomputed figures, so a bundle is read in today's words. The trainings themselves are not
checked: `adapm-bench run` on a run's specification does one of them again.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from api.bundles.layout import Bundle, BundleError, read_bundle, read_files, without_sentences
from api.bundles.signing import check_signature, predicate
from orchestrator.errors import OrchestratorError
from orchestrator.export.document import ExperimentDocument, document
from orchestrator.services.analysis import NO_CURVE, Analysis

ROUNDING: Final = 1e-6
"""Relative: quantiles of another machine or version differ by up to 1e-8, and no reader is shown six digits."""
LISTED_DIFFERENCES = 10
LISTED_CHARACTERS = 80
"""The longest value in a sentence: a stranger's text may be a book."""
DAMAGE: Final = (OrchestratorError, ValueError, TypeError, ArithmeticError, LookupError, RuntimeError, AssertionError)
"""Errors that the analysis raises for runs that no service would have: the bundle is refused."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """A bundle that was believed."""

    document: ExperimentDocument
    """The document with recomputed answers, in today's words."""
    signer: str
    """The fingerprint of the key that signed it."""
    is_trusted: bool
    """Whether the reader named that key."""
    figures: int
    """The number of stored figures that were compared with recomputed ones."""


def verify(folder: Path, trusted: Iterable[str] = ()) -> Verification:
    """Check everything that can be checked without training. Raises `BundleError` with the first check that fails.

    `trusted`: fingerprints of keys, of which one must have signed; without any, every key may have.
    """
    keys = frozenset(trusted)
    files = read_files(folder)
    signer, statement = check_signature(files, keys)
    bundle = read_bundle(files)
    if statement != predicate(bundle.document.provenance):
        raise BundleError("statement", "it says something else of the experiment than its files do")
    bundle_version, own_version = bundle.document.provenance.bench_version, version("adapm-bench")
    hint = (
        ""
        if own_version == bundle_version
        else f"; it was written by version {bundle_version}, and this is {own_version}"
    )
    try:
        recomputed = recompute(bundle)
    except DAMAGE as error:
        raise BundleError("figures", f"none follows from its runs: {type(error).__name__}: {error}{hint}") from error
    stored = without_sentences(dict(bundle.stored_figures))
    figures = tuple(_pair_figures(stored, without_sentences(recomputed.model_dump(mode="json"))))
    if differences := [figure for figure in figures if not _is_same(figure["stored"], figure["recomputed"])]:
        listed = "; ".join(
            f"{figure['figure']} is {json.dumps(figure['stored'])[:LISTED_CHARACTERS]} stored, "
            f"{json.dumps(figure['recomputed'])[:LISTED_CHARACTERS]} recomputed"
            for figure in differences[:LISTED_DIFFERENCES]
        )
        of_all = f"{len(differences)} of {len(figures)} do not follow from its runs"
        raise BundleError("figures", f"{of_all}: {listed}{hint}", differences)
    return Verification(document=recomputed, signer=signer, is_trusted=bool(keys), figures=len(figures))


def recompute(bundle: Bundle) -> ExperimentDocument:
    """Return the whole document that follows from specification, runs and points; only its date is the stored one."""
    raw = bundle.document
    analysis = Analysis(
        lambda _: (raw.experiment, raw.runs),
        lambda run_ids: {run_id: bundle.curves.get(run_id, NO_CURVE) for run_id in run_ids},
    )
    recomputed = document(raw.experiment, raw.runs, analysis, raw.provenance.bench_version)
    provenance = recomputed.provenance.model_copy(update={"written_at": raw.provenance.written_at})
    return recomputed.model_copy(update={"provenance": provenance})


def _pair_figures(stored: Any, recomputed: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield each stored value with its recomputed one. Fields that only one version of the bench has are left out."""
    match stored, recomputed:
        case dict(), dict():
            for name in recomputed:
                if name in stored:
                    yield from _pair_figures(stored[name], recomputed[name], f"{path}.{name}".lstrip("."))
        case list(), list() if len(stored) == len(recomputed):
            for index, (value, recomputed_value) in enumerate(zip(stored, recomputed, strict=True)):
                yield from _pair_figures(value, recomputed_value, f"{path}.{index}")
        case _:
            yield {"figure": path, "stored": stored, "recomputed": recomputed}


def _is_same(stored: Any, recomputed: Any) -> bool:
    if isinstance(stored, float) and isinstance(recomputed, float):
        return math.isclose(stored, recomputed, rel_tol=ROUNDING)
    return bool(stored == recomputed)
