"""`publish ID`: a finished experiment as a signed folder. `verify DIR`: whether it can be believed. `board DIR`: a page
of the verdicts of many."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from api.bundles.layout import BundleError
from api.bundles.publication import publish as write_bundle
from api.bundles.signing import KEY_NAME
from api.bundles.signing import signing_key as read_key
from api.bundles.verification import Verification
from api.bundles.verification import verify as verify_bundle
from api.cli.console import FAILED, Json, complain, console, fail, plain, print_json, refuse, sentences
from api.cli.experiments.show import Id
from api.cli.service import Url, open_client
from api.cli.settings import Data, environment_settings
from worker.words import pluralize

Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write, which must not exist.", metavar="DIR")]
SigningKeyFile = Annotated[
    Path | None,
    typer.Option(help="An Ed25519 key as PEM; default: one in the data folder, made with the first bundle."),
]
Folder = Annotated[Path, typer.Argument(help="A bundle: a folder that `publish` wrote.", metavar="DIR")]
Folders = Annotated[
    list[Path], typer.Argument(help="Bundles, or folders of bundles; of several installations too.", metavar="DIR...")
]
Site = Annotated[Path, typer.Option("--out", "-o", help="The folder to write the page into.", metavar="DIR")]
Signers = Annotated[
    list[str] | None,
    typer.Option(help="Fingerprint of the required signer; repeatable: one of them.", metavar="SHA256"),
]


def publish(
    id: Id, out: Out, signing_key: SigningKeyFile = None, data: Data = None, url: Url = None, json: Json = False
) -> None:
    """Write a finished experiment as a signed folder that anybody can check."""
    if out.exists():
        refuse(f"{out} exists already; choose another folder with --out")
    try:
        key = read_key(signing_key or environment_settings(data_folder=data).data_folder / KEY_NAME)
        with open_client(url) as client:
            written = write_bundle(client, id, out, key)
    except BundleError as error:
        fail(f"not published: {error}")
    except OSError as error:
        fail(f"error: cannot read or write {error.filename or out}: {error.strerror}")
    if json:
        print_json({"folder": str(out), **_facts(written)})
        return
    print(f"{out}: {plain(written.document.experiment.name)}, {pluralize(len(written.document.runs), 'run')}")
    print(f"signed by {written.signer}")
    print(f"  adapm-bench verify {out} --signer {written.signer}")


def verify(folder: Folder, signer: Signers = None, json: Json = False) -> None:
    """Check a bundle: files, signature, and every figure. Needs no service."""
    try:
        verified = verify_bundle(folder, _fingerprints(signer))
    except BundleError as error:
        if json:
            refusal = {"check": error.check, "reason": error.reason, "differences": error.differences}
            print_json({"verified": False, **refusal})
        complain(f"refused: {error}")
        raise typer.Exit(FAILED) from None
    if json:
        print_json({"verified": True, **_facts(verified)})
        return
    experiment = verified.document.experiment
    title = f"verified: {plain(experiment.name)} ({experiment.kind}, {plain(experiment.id)})"
    console().print(Text(title, style="bold"))
    owner = "one of the keys that were given" if verified.is_trusted else "a key that you have not named: see --signer"
    figures = (
        f"{pluralize(verified.figures, 'figure')} computed again from {pluralize(len(verified.document.runs), 'run')}"
    )
    lines = {
        "signature": f"{verified.signer}, {owner}",
        "figures": figures,
        "not checked": "that the trainings were done: docs/bundles.md shows how to do one again",
    }
    console().print(sentences(lines.items()))


def board(folders: Folders, out: Site, signer: Signers = None, json: Json = False) -> None:
    """Write a page of the verdicts of bundles, each verified."""
    from api.bundles.board import PAGE, write_board  # loads the templates of pages, which the other verbs do without

    if missing := [folder for folder in folders if not folder.is_dir()]:
        refuse(f"{missing[0]} is not a folder")
    try:
        written = write_board(folders, out, _fingerprints(signer))
    except OSError as error:
        fail(f"error: cannot write {error.filename or out}: {error.strerror}; choose another folder with --out")
    if json:
        verdicts = [
            {
                "experiment_id": line.bundle.document.experiment.id,
                "experiment": line.comparison.name,
                "workload": line.workload,
                "candidate": line.row.candidate,
                "baseline": line.comparison.baseline,
                "difference": line.row.difference,
                "conclusion": line.row.conclusion,
                "device_hours": line.row.device_hours,
                "signer": line.bundle.signer,
            }
            for line in written.lines
        ]
        refused = dict(written.refused)
        print_json({"board": str(out / PAGE), "bundles": written.bundles, "verdicts": verdicts, "refused": refused})
    else:
        print(f"{out / PAGE}: {pluralize(len(written.lines), 'verdict')} of {pluralize(written.bundles, 'bundle')}")
        for path, reason in written.refused.items():
            complain(f"refused: {path}: {reason}")
    if written.refused and not written.bundles:
        raise typer.Exit(FAILED)


def _fingerprints(signers: list[str] | None) -> list[str]:
    return [fingerprint.removeprefix("sha256:").lower() for fingerprint in signers or ()]


def _facts(verified: Verification) -> dict[str, Any]:
    provenance = verified.document.provenance
    return {
        "experiment_id": provenance.experiment_id,
        "name": provenance.name,
        "signer": verified.signer,
        "signer_is_trusted": verified.is_trusted,
        "runs": provenance.runs,
        "results": provenance.results,
        "figures": verified.figures,
    }
