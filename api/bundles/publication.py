"""Publication: the document of a finished experiment, signed here, and verified before the folder appears."""

import shutil
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from api.bundles.layout import BundleError, raw_files
from api.bundles.signing import sign
from api.bundles.verification import Verification, verify
from api.client.client import Client
from orchestrator.export.document import ExperimentDocument


def publish(client: Client, experiment_id: str, folder: Path, key: Ed25519PrivateKey) -> Verification:
    """Write the bundle of an experiment. Raises `BundleError` if it has not ended, or would not be believed, and
    `OSError`; then there is no folder."""
    id = client.experiment(experiment_id).id
    try:
        document = ExperimentDocument.model_validate_json(client.document(id, "document.json"))
    except ValidationError as error:
        raise BundleError("schema", f"the service speaks of experiments otherwise than this does: {error}") from error
    if not document.experiment.counts.done():
        raise BundleError("experiment", f"{id} has not ended; a bundle is of results that change no more")
    with tempfile.TemporaryDirectory() as unfinished:
        points = Path(unfinished) / "points"
        client.export(id, "series.parquet", points)
        return write_bundle(folder, document, points.read_bytes(), key)


def write_bundle(folder: Path, document: ExperimentDocument, points: bytes, key: Ed25519PrivateKey) -> Verification:
    """Write all files of a bundle or none: a folder of that name is a whole bundle. Raises as `publish`."""
    files = raw_files(document, points)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".unfinished", dir=folder.parent))
    try:
        unfinished.chmod(0o755)
        for name, content in {**files, **sign(files, document.provenance, key)}.items():
            (unfinished / name).write_bytes(content)
        verified = verify(unfinished)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return verified
