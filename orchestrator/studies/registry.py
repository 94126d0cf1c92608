"""The studies by name: every folder here with a `study.yaml`, and those of one's own in a data folder's `studies`."""

from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

from orchestrator.errors import NotFoundError
from orchestrator.specs.text import to_yaml
from orchestrator.studies.study import SHARED_METRICS, Study, StudyError, StudyFigures, StudyScale, read_study
from worker.files import write_atomically
from worker.schema import trust_stored_names

SHIPPED = Path(__file__).parent
FILE = "study.yaml"


def all_studies(folder: Path | None = None) -> tuple[Study, ...]:
    """Return all studies of the package, so that a new study needs no list, and those that were registered in `folder`,
    where unreadable ones are left out."""
    shipped = _shipped_studies()
    names, registered = {study.name for study in shipped}, list[Study]()
    for path in sorted(folder.glob(f"*/{FILE}")) if folder else ():
        with suppress(StudyError), trust_stored_names():  # by the rules of its day, as stored experiments are
            registered.append(read_study(path))
    return (*shipped, *(study for study in registered if study.name not in names))


@cache
def _shipped_studies() -> tuple[Study, ...]:
    studies = [read_study(path) for path in SHIPPED.glob(f"*/{FILE}")]
    return tuple(sorted(studies, key=lambda study: (study.order, study.name)))


def names() -> tuple[str, ...]:
    """Return all that come with this version."""
    return tuple(study.name for study in all_studies())


def study(name: str, folder: Path | None = None) -> Study:
    """Return the study of that name; raises `NotFoundError`, which names the others."""
    studies = all_studies(folder)
    for candidate in studies:
        if candidate.name == name:
            return candidate
    raise NotFoundError(f"there is no study {name!r}; there are {', '.join(study.name for study in studies)}")


def register(folder: Path, study: Study) -> None:
    """Write a study of one's own beside its results, before anything is trained. Raises `StudyError` if another is
    there under its name: what is claimed does not change once it is registered."""
    if study.name in names():
        raise StudyError(f"a study that comes with this version is called {study.name}; give this one another name")
    for claim in study.claims:
        if claim.metric not in SHARED_METRICS:
            raise StudyError(f"{claim.metric} is not measured; a claim's metric is one of {', '.join(SHARED_METRICS)}")
    path = folder / study.name / FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_yaml(study.model_dump(mode="json", exclude_unset=True)))
    elif read_study(path) != study:
        raise StudyError(f"{path} is another study of that name; give this one a name of its own")


def published_path(name: str, scale: StudyScale) -> Path:
    """Return the path of the result that comes with this version."""
    return SHIPPED / name.replace("-", "_") / f"result.{scale.value}.json"


def figures_of(name: str) -> StudyFigures | None:
    """Return the measures of the study's own module; None for studies that need none."""
    package = name.replace("-", "_")
    if not (SHIPPED / package / "figures.py").exists():
        return None
    figures: StudyFigures = import_module(f"{__package__}.{package}.figures").FIGURES
    return figures
