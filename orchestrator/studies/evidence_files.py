"""Evidence on disk: `<study>.<scale>.json`, small enough to be kept beside the code."""

import json
import os
from pathlib import Path

from pydantic import ValidationError

from orchestrator.errors import OrchestratorError
from orchestrator.studies.evidence import Evidence, Scale

PUBLISHED = Path(__file__).parent / "published"
"""The results that come with this version."""


class EvidenceError(OrchestratorError):
    """A file of evidence cannot be read."""


def evidence_path(folder: Path, name: str, scale: Scale) -> Path:
    """Where a study's evidence at that scale lies."""
    return folder / f"{name}.{scale.value}.json"


def read_evidence(folder: Path, name: str, scale: Scale) -> Evidence | None:
    """The evidence, or None where there is none. Raises `EvidenceError`."""
    path = evidence_path(folder, name, scale)
    try:
        return Evidence.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise EvidenceError(
            f"the file {path.name} is no result of a study; remove it, and run the study again"
        ) from error


def write_evidence(folder: Path, evidence: Evidence) -> Path:
    """Write it whole or not at all; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = evidence_path(folder, evidence.study, evidence.scale)
    temporary = path.with_suffix(".new")
    content = json.dumps(evidence.model_dump(mode="json", exclude_defaults=True), indent=1, ensure_ascii=False)
    temporary.write_text(f"{content}\n", encoding="utf-8")
    os.replace(temporary, path)
    return path
