"""`publish ID`: a finished experiment as a signed folder. `verify DIR`: whether it can be believed. `board DIR`: pages
of many."""

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from api.bundles.layout import BundleError
from api.bundles.publication import publish as write_bundle
from api.bundles.ranking import Ranking
from api.bundles.rules import RuleSetError, all_rules
from api.bundles.signing import KEY_NAME, BundleKeyError
from api.bundles.signing import signing_key as read_key
from api.bundles.verification import Verification
from api.bundles.verification import verify as verify_bundle
from api.cli.console import FAILED, Json, complain, console, fail, plain, print_json, refuse, sentences
from api.cli.experiments.show import Id
from api.cli.service import Data, Url, environment_settings, open_client
from dashboards.text import formats
from worker.errors import WorkerError
from worker.words import pluralize

Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write, which must not exist.", metavar="DIR")]
SigningKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--signing-key", help="An Ed25519 key as PEM; default: one in the data folder, made with the first bundle."
    ),
]
Folder = Annotated[Path, typer.Argument(help="A bundle: a folder that `publish` wrote.", metavar="DIR")]
Folders = Annotated[
    list[Path], typer.Argument(help="Bundles, or folders of bundles; of several installations too.", metavar="DIR...")
]
Site = Annotated[Path, typer.Option("--out", "-o", help="The folder to write the pages into.", metavar="DIR")]
Signers = Annotated[
    list[str] | None,
    typer.Option("--signer", help="A fingerprint that must have signed; several: one of them.", metavar="SHA256"),
]
RuleFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules", help="A file of rules to rank by; several may be given. Default: those that ship.", metavar="FILE"
    ),
]
RerunOption = Annotated[bool, typer.Option("--rerun", help="Train a run of it again here, drawn by chance.")]
RunOption = Annotated[str | None, typer.Option("--run", help="With --rerun: train this one.", metavar="RUN")]


def publish(
    id: Id, out: Out, signing_key: SigningKeyFile = None, data: Data = None, url: Url = None, json: Json = False
) -> None:
    """Publish a finished experiment: raw figures, answers and provenance as a signed folder that anybody can check."""
    if out.exists():
        refuse(f"{out} exists already; choose another folder with --out")
    try:
        key = read_key(signing_key or environment_settings(data_folder=data).data_folder / KEY_NAME)
        with open_client(url) as client:
            written = write_bundle(client, id, out, key)
    except BundleKeyError as error:
        fail(f"error: {error}")
    except BundleError as error:
        fail(f"not published: {error}")
    except OSError as error:
        fail(f"error: cannot write {error.filename or out}: {error.strerror}; choose another folder with --out")
    if json:
        print_json({"folder": str(out), **_facts(written)})
        return
    print(f"{out}: {plain(written.bundle.experiment.name)}, {pluralize(len(written.bundle.runs), 'run')}")
    print(f"signed by {written.signer}")
    print(f"  adapm-bench verify {out} --signer {written.signer}")


def verify(
    folder: Folder, signer: Signers = None, rerun: RerunOption = False, run: RunOption = None, json: Json = False
) -> None:
    """Check a bundle: signature, raw figures, equal tuning, every figure and sentence derived again; no service."""
    if run is not None and not rerun:
        refuse("--run needs --rerun")
    try:
        found = verify_bundle(folder, _fingerprints(signer))
    except BundleError as error:
        if json:
            print_json({"verified": False, "check": error.check, "reason": error.reason})
        complain(f"refused: {error}")
        raise typer.Exit(FAILED) from None
    lines = list(found.lines)
    again = _train_again(found, run, quiet=json) if rerun else None
    if again is not None:
        lines[-1] = ("rerun", again)
    if json:
        print_json({"verified": True, **_facts(found), "checks": dict(lines)})
        return
    experiment = found.bundle.experiment
    title = f"verified: {plain(experiment.name)} ({experiment.kind}, {plain(experiment.id)})"
    console().print(Text(title, style="bold"))
    whose = "one of the keys that were given" if found.is_trusted else "a key that you have not named: see --signer"
    signed = ("signature", f"{found.signer}, {whose}")
    console().print(sentences((name, formats.sentence(line)) for name, line in (lines[0], signed, *lines[1:])))


def board(folders: Folders, out: Site, signer: Signers = None, rules: RuleFiles = None, json: Json = False) -> None:
    """Write a board of bundles as plain pages: ranked by rules and workload, with curves, fronts, what was verified."""
    from api.bundles.board import write_board  # loads matplotlib, which the other verbs do without

    if missing := [each for each in folders if not each.is_dir()]:
        refuse(f"{missing[0]} is no folder")
    try:
        written = write_board(folders, out, _fingerprints(signer), all_rules(rules or ()))
    except RuleSetError as error:
        refuse(str(error))
    except OSError as error:
        fail(f"error: cannot write {error.filename or out}: {error.strerror}; choose another folder with --out")
    count = len(written.submissions)
    if json:
        ranked: dict[str, list[dict[str, Any]]] = {}
        for each in written.rankings:
            ranked.setdefault(each.rules.name if each.rules else "", []).append(_standing(each))
        index = str(out / "index.html")
        print_json({"board": index, "submissions": count, "rules": ranked, "refused": written.refused})
    else:
        print(f"{out / 'index.html'}: {pluralize(count, 'submission')}")
        for path, why in written.refused.items():
            complain(f"refused: {path}: {why}")
    if written.refused and not count:
        raise typer.Exit(FAILED)


def _standing(ranking: Ranking) -> dict[str, Any]:
    """Who is ranked on which data, and why others are not."""
    return {
        "data_hash": ranking.data_hash,
        "ranked": [
            {
                "place": each.place,
                "candidate": each.entry.row.candidate,
                "experiment_id": each.entry.submission.experiment.id,
                "shown": each.shown,
            }
            for each in ranking.places
        ],
        "not_ranked": [
            {
                "candidate": each.entry.row.candidate if each.entry else None,
                "experiment_id": each.submission.experiment.id,
                "reason": each.reason,
            }
            for each in ranking.not_ranked
        ],
    }


def _fingerprints(given: list[str] | None) -> list[str]:
    return [each.removeprefix("sha256:").lower() for each in given or ()]


def _train_again(found: Verification, run_id: str | None, *, quiet: bool) -> str:
    """What came of it, in words; ends the command where it came to something else."""
    from api.bundles.rerun import runs_to_train, train_again  # loads torch

    runs = [run for run in runs_to_train(found.bundle) if run_id in (None, run.id)]
    if not runs:
        fail("no run of it can be trained again: only those of one process that reached the end of their budget can")
    chosen = secrets.choice(runs)
    if not quiet:
        print(f"training {plain(chosen.id)} again, which took {formats.duration(chosen.device_seconds)}", flush=True)
    settings = environment_settings()
    try:
        again = train_again(found.bundle, chosen, settings.datasets_folder(), settings.dataset_url)
    except BundleError as error:
        fail(f"refused: {error}")
    except WorkerError as error:
        fail(f"error: {chosen.id} cannot be trained here: {error}")
    return f"{chosen.id}: {again.told}"


def _facts(found: Verification) -> dict[str, Any]:
    said = found.bundle.document.provenance
    return {
        "experiment_id": said.experiment_id,
        "name": said.name,
        "signer": found.signer,
        "signer_is_trusted": found.is_trusted,
        "runs": said.runs,
        "results": said.results,
    }
