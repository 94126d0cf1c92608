"""The references of a result, as BibTeX: this program, the experiment, and the paper of every optimizer in it. Pure
text.

The catalog says of each optimizer `Authors: Title, arXiv 2510.09103`, several works with semicolons between; an entry
is made of what stands there, and of nothing else.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dashboards.files.publication import tex
from optim import catalog
from orchestrator.records import ExperimentRecord

ARXIV = re.compile(r",? arXiv (\d{4}\.\d{4,5})")
YEAR = re.compile(r", (\d{4})$")
ADAPM = "Zhang, Liu, Fang: AdaPM, a Partial Momentum Algorithm for LLM Training, arXiv 2510.09103"
"""The paper that this bench is the home of, whatever was compared."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A cited work."""

    key: str
    kind: str
    """BibTeX's: `misc`, `software`."""
    fields: tuple[tuple[str, str], ...]

    def bibtex(self) -> str:
        """Return the entry."""
        lines = [f"  {name} = {{{value}}}" for name, value in self.fields]
        return f"@{self.kind}{{{self.key},\n" + ",\n".join(lines) + "\n}\n"


def references(experiment: ExperimentRecord, version: str, commit: str | None) -> tuple[Reference, ...]:
    """Return the program and the experiment first, then papers in the order of the candidates; each work once."""
    entries = [catalog.find(candidate.optimizer) for candidate in experiment.spec.candidates]
    papers = [ADAPM, *(entry.paper for entry in entries if entry)]
    works = [work for paper in papers for work in paper.split("; ")]
    fields = (("title", "{AdaPM Bench}"), ("version", tex(version)))
    note = (("note", f"git commit {tex(commit)}"),) if commit else ()
    program = Reference(key="adapm-bench", kind="software", fields=fields + note)
    about = f"{experiment.kind} {experiment.id} of AdaPM Bench, specification sha256 {experiment.spec_hash}"
    fields = (("title", f"{{{tex(experiment.name)}}}"), ("note", about))
    itself = Reference(key=f"adapm-bench-{experiment.id}", kind="misc", fields=fields)
    citations = [program, itself, *map(reference, works)]
    return tuple({citation.key: citation for citation in citations}.values())


def bibtex(works: Iterable[Reference]) -> str:
    """Return the whole bibliography."""
    return "\n".join(work.bibtex() for work in works)


def reference(work: str) -> Reference:
    """Return a work as the catalog writes it."""
    number = ARXIV.search(work)
    year = YEAR.search(work)
    authors, _, title = ARXIV.sub("", YEAR.sub("", work)).partition(": ")
    fields = (
        [("author", _authors(authors)), ("title", f"{{{tex(title)}}}")] if title else [("author", _authors(authors))]
    )
    if number:
        fields += [("year", f"20{number[1][:2]}"), ("eprint", number[1]), ("archivePrefix", "arXiv")]
    elif year:
        fields.append(("year", year[1]))
    return Reference(
        key=_key(authors, number[1] if number else year[1] if year else title), kind="misc", fields=tuple(fields)
    )


def _authors(names: str) -> str:
    """Return BibTeX's authors: `Zhang et al.` → `Zhang and others`, `Loshchilov, Hutter` → `Loshchilov and Hutter`."""
    return tex(" and ".join(names.replace(" et al.", ", others").split(", ")))


def _key(authors: str, number: str) -> str:
    first = re.split(r"[ ,]", authors, maxsplit=1)[0].lower()
    return re.sub(r"[^a-z0-9.-]", "", f"{first}-{number}".lower())
